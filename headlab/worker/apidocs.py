"""The worker's interface in words, from its OpenAPI description: docs/api.md, and the same as a page."""

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

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
STYLE = """:root{color-scheme:light dark;--line:light-dark(#d4dae1,#35404c);--soft:light-dark(#f4f6f8,#1a212a)}
body{font:16px/1.55 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;
background:light-dark(#fff,#11161c);color:light-dark(#1c2530,#e3e8ee)}
a{color:light-dark(#1f5fa8,#6fb1f0)}code{background:var(--soft);padding:.1em .3em;overflow-wrap:anywhere}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
h3{margin-top:2rem}th,td{border:1px solid var(--line);padding:.35rem .6rem;text-align:left;vertical-align:top}
td:first-child{white-space:nowrap}h2{margin-top:2.5rem}"""
MADE = "Made by `python tools/api_docs.py`; do not edit."
INTRO = (
    "Send and receive JSON. Where the worker was started with a token, every request but GET /health carries "
    "`Authorization: Bearer TOKEN`. Unknown fields are refused. A body may hold "
    f"{MAX_BODY >> 20} MiB, that of POST /tasks {MAX_SENT >> 20} MiB. "
    "Every refusal is an object with two fields: `error`, a sentence, "
    "and `code`, which problem it is, like `job.unknown`; codes stay as they are when sentences are reworded."
)
WHEN = {
    400: "the request asks for something that does not exist or does not fit; or its Host header names another machine",
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
TYPE = re.compile(r"\[([A-Z]\w+)\]")
Schema = Mapping[str, Any]


def add_docs(app: FastAPI) -> None:
    """Serve the page at /docs; it needs the token like any other path."""

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()), headers={"Content-Security-Policy": POLICY})


def _body(content: Schema) -> str:
    return "; ".join(
        in_words(kind["schema"]) + ("" if media == "application/json" else f" as `{media}`")
        for media, kind in content.get("content", {}).items()
        if kind.get("schema")
    )


def _default(schema: Schema) -> str:
    """Default of an optional field, in words; a description omits a default of None."""
    if schema.get("default") is not None:
        return f"`{json.dumps(schema['default'])}`"
    return "none" if {"type": "null"} in schema.get("anyOf", ()) else "empty"


def in_words(schema: Schema) -> str:
    """A JSON schema in words, with its limits."""
    if "$ref" in schema:
        return f"[{schema['$ref'].rpartition('/')[2]}]"
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(
            dict.fromkeys(in_words(one) for one in schema.get("anyOf") or schema["oneOf"])
        )
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    limits = _limits(schema)
    return _kind(schema) + (f" ({limits})" if limits else "")


def _kind(schema: Schema) -> str:
    kind = str(schema.get("type", "anything"))
    if kind == "array" and "prefixItems" in schema:
        return "list of " + ", ".join(in_words(one) for one in schema["prefixItems"])
    if kind == "array":
        return "list of " + in_words(schema.get("items", {}))
    if kind == "object":
        values = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
        inner = " or ".join(dict.fromkeys(in_words(v) for v in values if isinstance(v, Mapping)))
        return "object" + (f" of {inner}" if inner else "")
    return {
        "integer": "whole number",
        "null": "none",
        "string": "text",
        "boolean": "true or false",
    }.get(kind, kind)


def _limits(schema: Schema) -> str:
    low = _bound(schema, {"minimum": "from", "exclusiveMinimum": "above"})
    high = _bound(schema, {"maximum": "to", "exclusiveMaximum": "below"})
    said = [f"{low}{',' if low and 'below' in high else ''} {high}".strip()]
    for few, many, what in (
        ("minLength", "maxLength", "characters"),
        ("minItems", "maxItems", "entries"),
    ):
        if "prefixItems" not in schema and many in schema:
            said.append(f"{schema.get(few, 0)} to {schema[many]} {what}")
    if "maxProperties" in schema:
        said.append(f"up to {schema['maxProperties']} entries")
    if "pattern" in schema:
        said.append(f"matching `{schema['pattern']}`")
    return ", ".join(filter(None, said))


def _bound(schema: Schema, words: Mapping[str, str]) -> str:
    for key, word in words.items():
        if key in schema:
            number = schema[key]
            return f"{word} {int(number) if float(number).is_integer() else number}"
    return ""


def markdown(openapi: Schema) -> str:
    """The whole interface as one Markdown page, from its OpenAPI description."""
    routes = {
        f"{method.upper()} {path}": what
        for path, ways in openapi["paths"].items()
        for method, what in ways.items()
    }
    refused = {
        title: {int(code) for code in what["responses"] if code >= "400"}
        for title, what in routes.items()
    }
    everywhere = set.intersection(*refused.values())  # these are listed once
    lines = ["# The worker's interface", "", MADE, "", INTRO, ""]
    lines += [
        "## What can be asked",
        "",
        f"Any request may be refused with {_said(everywhere)}.",
        "",
    ]
    for title, what in routes.items():
        lines += [f"### {title}", "", *_says(what)]
        lines += [
            f"- `{p['name']}`: {_linked(in_words(p['schema']))}" for p in what.get("parameters", [])
        ]
        lines += (
            [f"- takes: {_linked(taken)}"] if (taken := _body(what.get("requestBody", {}))) else []
        )
        good = (
            f"{code}: {_body(answer)}".rstrip(": ")
            for code, answer in what["responses"].items()
            if code < "300"
        )
        lines += [f"- answers: {_linked('; '.join(good))}"]
        lines += (
            [f"- also refuses with: {_said(more)}"] if (more := refused[title] - everywhere) else []
        )
        lines += [""]
    lines += ["## Types", ""]
    for name, schema in sorted(openapi.get("components", {}).get("schemas", {}).items()):
        if schema.get("type") == "object" and not name.endswith("ValidationError"):
            lines += [
                f"### {name}",
                "",
                *_says(schema),
                "| field | type | default |",
                "| --- | --- | --- |",
            ]
            lines += [*_rows(schema), ""]
    lines += ["## Refusals", "", "| status | when |", "| --- | --- |"]
    codes = sorted(set[int]().union(*refused.values()))
    lines += [f"| {code} {HTTPStatus(code).phrase} | {WHEN[code]} |" for code in codes]
    return "\n".join(lines) + "\n"


def _says(what: Schema) -> list[str]:
    text = " ".join(what.get("description", "").split())
    return [text, ""] if text else []


def _rows(schema: Schema) -> Iterator[str]:
    """A row for each field of a type: its name, its type in words, and its value if it is omitted."""
    for name, of in schema.get("properties", {}).items():
        kind = _linked(in_words(of)).replace("|", chr(92) + "|")
        yield f"| `{name}` | {kind} | {'required' if name in schema.get('required', ()) else _default(of)} |"


def _linked(text: str) -> str:
    return TYPE.sub(lambda m: f"[{m[1]}](#{m[1].lower()})", text)


def _said(codes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(codes)))


def page(openapi: Schema) -> str:
    """The whole interface as one HTML page: no script, nothing fetched, everything escaped."""
    body = (
        MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .render(markdown(openapi).replace(MADE, ""))
    )
    body = re.sub(r"<h([23])>(.*?)</h\1>", _anchored, body)
    body = body.replace("<table>", '<div class="wide"><table>').replace(
        "</table>", "</table></div>"
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    )
    title = f"<title>headlab worker {escape(str(openapi['info']['version']))}</title>"
    return f'<!doctype html><html lang="en"><head>{head}{title}<style>{STYLE}</style></head><body>{body}</body></html>'


def _anchored(heading: re.Match[str]) -> str:
    level, text = heading.groups()
    anchor = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f'<h{level} id="{anchor}">{text}</h{level}>'
