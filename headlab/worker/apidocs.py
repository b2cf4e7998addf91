"""The worker's interface in words, from its OpenAPI description: docs/api.md, and a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from markdown_it import MarkdownIt
from starlette.responses import HTMLResponse

from headlab.worker.schemas import MAX_BODY, MAX_SENT

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
STYLE = """:root{color-scheme:light dark;--line:light-dark(#d4dae1,#35404c);--soft:light-dark(#f4f6f8,#1a212a)}
body{font:16px/1.55 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;
background:light-dark(#fff,#11161c);color:light-dark(#1c2530,#e3e8ee)}
a{color:light-dark(#1f5fa8,#6fb1f0)}code{background:var(--soft);padding:.1em .3em;overflow-wrap:anywhere}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
h3{margin-top:2rem}th,td{border:1px solid var(--line);padding:.35rem .6rem;text-align:left;vertical-align:top}
td:first-child{white-space:nowrap}h2{margin-top:2.5rem}"""
MADE_BY = "Made by `python tools/api_docs.py`; do not edit."
INTRO = (
    "Send and receive JSON. Where the worker was started with a token, every request but GET "
    "/health carries `Authorization: Bearer TOKEN`. Unknown fields are refused. A body may hold "
    f"{MAX_BODY >> 20} MiB, that of POST /tasks {MAX_SENT >> 20} MiB. Every refusal is an object "
    "with two fields: `error`, a sentence, and `code`, which problem it is, like `job.unknown`; "
    "codes stay as they are when sentences are reworded."
)
REFUSAL_REASONS = {
    400: "the request asks for something that does not exist or does not fit; "
    "or its Host header names another machine",
    401: "the token is missing or wrong",
    403: "a page of another site asks",
    404: "there is no such job or path, or the model may not be requested",
    405: "the path is there, the method is not",
    408: "the body did not arrive in time",
    409: "not now: the worker is busy with another model, or the job is in another state",
    413: "the body is too large",
    422: "a field is missing, unknown, of the wrong type or outside its limits",
    429: "too many requests or jobs are waiting",
    500: "the worker failed; its log says where, never what was typed",
    503: "the worker is starting, stopping, broken or full",
}
TYPE_NAME = re.compile(r"\[([A-Z]\w+)\]")
Schema = Mapping[str, Any]


def add_docs(app: FastAPI) -> None:
    """Serve the page at /docs; it needs the token like any other path."""

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(html_page(app.openapi()), headers={"Content-Security-Policy": POLICY})


def _body_words(content: Schema) -> str:
    parts = []
    for media_type, body in content.get("content", {}).items():
        if not body.get("schema"):
            continue
        words = schema_words(body["schema"])
        if media_type != "application/json":
            words += f" as `{media_type}`"
        parts.append(words)
    return "; ".join(parts)


def _default_words(schema: Schema) -> str:
    """Default of an optional field, in words; a description omits a default of None."""
    if schema.get("default") is not None:
        return f"`{json.dumps(schema['default'])}`"
    if {"type": "null"} in schema.get("anyOf", ()):
        return "none"
    return "empty"


def schema_words(schema: Schema) -> str:
    """A JSON schema in words, with its limits."""
    if "$ref" in schema:
        return f"[{schema['$ref'].rpartition('/')[2]}]"
    if "anyOf" in schema or "oneOf" in schema:
        alternatives = schema.get("anyOf") or schema["oneOf"]
        return " or ".join(dict.fromkeys(map(schema_words, alternatives)))
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    limits = _limit_words(schema)
    return _type_words(schema) + (f" ({limits})" if limits else "")


def _type_words(schema: Schema) -> str:
    kind = str(schema.get("type", "anything"))
    if kind == "array" and "prefixItems" in schema:
        return "list of " + ", ".join(schema_words(item) for item in schema["prefixItems"])
    if kind == "array":
        return "list of " + schema_words(schema.get("items", {}))
    if kind == "object":
        value_schemas = [
            schema.get("additionalProperties"),
            *schema.get("patternProperties", {}).values(),
        ]
        value_words = [schema_words(value) for value in value_schemas if isinstance(value, Mapping)]
        if not value_words:
            return "object"
        return f"object of {' or '.join(dict.fromkeys(value_words))}"
    return {
        "integer": "whole number",
        "null": "none",
        "string": "text",
        "boolean": "true or false",
    }.get(kind, kind)


def _limit_words(schema: Schema) -> str:
    low = _bound_words(schema, {"minimum": "from", "exclusiveMinimum": "above"})
    high = _bound_words(schema, {"maximum": "to", "exclusiveMaximum": "below"})
    comma = "," if low and "below" in high else ""
    limits = [f"{low}{comma} {high}".strip()]
    for min_key, max_key, unit in (
        ("minLength", "maxLength", "characters"),
        ("minItems", "maxItems", "entries"),
    ):
        if "prefixItems" not in schema and max_key in schema:
            limits.append(f"{schema.get(min_key, 0)} to {schema[max_key]} {unit}")
    if "maxProperties" in schema:
        limits.append(f"up to {schema['maxProperties']} entries")
    if "pattern" in schema:
        limits.append(f"matching `{schema['pattern']}`")
    return ", ".join(filter(None, limits))


def _bound_words(schema: Schema, words: Mapping[str, str]) -> str:
    for key, word in words.items():
        if key in schema:
            number = schema[key]
            if float(number).is_integer():
                number = int(number)
            return f"{word} {number}"
    return ""


def markdown(openapi: Schema) -> str:
    """The whole interface as one Markdown page, from its OpenAPI description."""
    routes = {}
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            routes[f"{method.upper()} {path}"] = operation
    refusals_by_route = {}
    for title, operation in routes.items():
        codes = {int(code) for code in operation["responses"] if code >= "400"}
        refusals_by_route[title] = codes
    common_refusals = set.intersection(*refusals_by_route.values())  # these are listed once
    lines = ["# The worker's interface", "", MADE_BY, "", INTRO, ""]
    lines += [
        "## What can be asked",
        "",
        f"Any request may be refused with {_codes_text(common_refusals)}.",
        "",
    ]
    for title, operation in routes.items():
        lines += _route_lines(title, operation, refusals_by_route[title] - common_refusals)
    lines += ["## Types", ""]
    for name, schema in sorted(openapi.get("components", {}).get("schemas", {}).items()):
        if schema.get("type") == "object" and not name.endswith("ValidationError"):
            lines += [
                f"### {name}",
                "",
                *_description_lines(schema),
                "| field | type | default |",
                "| --- | --- | --- |",
            ]
            lines += [*_field_rows(schema), ""]
    lines += ["## Refusals", "", "| status | when |", "| --- | --- |"]
    all_codes = set[int]().union(*refusals_by_route.values())
    for code in sorted(all_codes):
        lines.append(f"| {code} {HTTPStatus(code).phrase} | {REFUSAL_REASONS[code]} |")
    return "\n".join(lines) + "\n"


def _route_lines(title: str, operation: Schema, further_refusals: Iterable[int]) -> list[str]:
    """What can be asked of one route, and what it answers.

    Args:
        title: Its method and path.
        operation: Its description.
        further_refusals: Statuses of refusals that not every route has.
    """
    lines = [f"### {title}", "", *_description_lines(operation)]
    for parameter in operation.get("parameters", []):
        lines.append(f"- `{parameter['name']}`: {_with_links(schema_words(parameter['schema']))}")
    body = _body_words(operation.get("requestBody", {}))
    if body:
        lines.append(f"- takes: {_with_links(body)}")
    answers = []
    for code, answer in operation["responses"].items():
        if code < "300":
            answers.append(f"{code}: {_body_words(answer)}".rstrip(": "))
    lines.append(f"- answers: {_with_links('; '.join(answers))}")
    if further_refusals:
        lines.append(f"- also refuses with: {_codes_text(further_refusals)}")
    return [*lines, ""]


def _description_lines(schema: Schema) -> list[str]:
    text = " ".join(schema.get("description", "").split())
    return [text, ""] if text else []


def _field_rows(schema: Schema) -> Iterator[str]:
    """A row for each field of a type: its name, its type in words, and its default."""
    for name, field_schema in schema.get("properties", {}).items():
        kind = _with_links(schema_words(field_schema)).replace("|", chr(92) + "|")
        is_required = name in schema.get("required", ())
        default = "required" if is_required else _default_words(field_schema)
        yield f"| `{name}` | {kind} | {default} |"


def _with_links(text: str) -> str:
    return TYPE_NAME.sub(lambda match: f"[{match[1]}](#{match[1].lower()})", text)


def _codes_text(codes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(codes)))


def html_page(openapi: Schema) -> str:
    """The whole interface as one HTML page: no script, nothing fetched, everything escaped."""
    body = (
        MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .render(markdown(openapi).replace(MADE_BY, ""))
    )
    body = re.sub(r"<h([23])>(.*?)</h\1>", _heading_with_anchor, body)
    body = body.replace("<table>", '<div class="wide"><table>').replace(
        "</table>", "</table></div>"
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    )
    title = f"<title>headlab worker {escape(str(openapi['info']['version']))}</title>"
    return (
        f'<!doctype html><html lang="en"><head>{head}{title}<style>{STYLE}</style></head>'
        f"<body>{body}</body></html>"
    )


def _heading_with_anchor(heading: re.Match[str]) -> str:
    level, text = heading.groups()
    anchor = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f'<h{level} id="{anchor}">{text}</h{level}>'
