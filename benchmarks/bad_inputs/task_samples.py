"""Valid tasks of every kind that the documentation names, small enough to be read in a millisecond."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

DECLARATION = "mine.toml"


@dataclass(frozen=True)
class TaskSample:
    """A task as its files, and how it is asked for.

    Attributes:
        title: What it is, in a few words.
        files: Contents by path below the folder of the input.
        special: What stands in the place of a file, by path: a key of `task_files.SPECIAL`.
        task: The name of the task, or the path of its declaration.
        data: The folder that is given as data; empty for none.
        family: The tiny model that answers it (tests/support/tiny_models.py); empty if it is only
            read.
    """

    title: str
    files: Mapping[str, bytes]
    task: str = DECLARATION
    data: str = ""
    family: str = ""
    special: Mapping[str, str] = field(default_factory=dict)

    @property
    def data_file(self) -> str:
        """The path of the first file with examples."""
        return next(path for path in self.files if path != DECLARATION)

    @property
    def is_declared(self) -> bool:
        """Whether it has a declaration of its own."""
        return self.task == DECLARATION


def lines_of_json(*objects: object) -> bytes:
    """Objects as jsonl."""
    return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in objects).encode()


def declared_sample(
    title: str, kind: str, columns: str, examples: bytes, family: str, further_lines: str = ""
) -> TaskSample:
    """A task with one file of German dev examples.

    Args:
        title: What it is, in a few words.
        kind: Format of the file, which is its ending too.
        columns: Lines of the table `columns` of its declaration.
        examples: Content of the file.
        family: The tiny model that answers it; empty if it is only read.
        further_lines: Of the declaration.
    """
    declaration = f'name = "mine"\nformat = "{kind}"\nfiles = "{{language}}.{{split}}.{kind}"\n{further_lines}\n'
    files = {
        f"de.dev.{kind}": examples,
        DECLARATION: f"{declaration}[columns]\n{columns}\n".encode(),
    }
    return TaskSample(title, files, family=family)


CONLLU_SENTENCES = (
    b"# sent_id = a\n# text = zum Haus\n1-2\tzum\t_\t_\t_\t_\t_\t_\t_\t_\n"
    b"1\tzu\tzu\tADP\t_\t_\t3\tcase\t_\t_\n2\tdem\tder\tDET\t_\t_\t3\tdet\t_\t_\n"
    b"3\tHaus\tHaus\tNOUN\t_\t_\t0\troot\t_\t_\n\n1\tja\tja\tINTJ\t_\t_\t0\troot\t_\t_\n\n"
)
TEXTS = b'review,stars\nw4 w5,a\n"w6, w7",b\n"a ""bad"" one",a\nw8 w9,b\n'
PAIRS = b"one\ttwo\tsame\nw4 w5\tw6\ta\nw7\tw8 w9\tb\nw5\tw5\ta\n"
WORDS = lines_of_json(
    {"tokens": ["w4", "w5"], "tags": ["a", "b"]}, {"tokens": ["w6"], "tags": ["b"]}
)
CHOICES = lines_of_json(
    {"stem": "w4 w5", "options": ["w6", "w7"], "right": "w6"},
    {"stem": "w8", "options": ["w9", "w4", "w5"], "right": 2},
)
TARGETS = b"from\tto\nw4 w5\tw6 w7\nw8\tw9\n"
TEXTS_ALONE = b"text\nw4 w5 w6 w7\nw8 w9 w4\n"
MIXED_ROWS = (
    b"text,label,lang,part,id,template\n"
    b"w4,a,de,validation,1,x\nw5,b,de,validation,2,x\nw6,a,en,validation,1,y\n"
)
TOKENS = b"-DOCSTART- -X- a\n\n# id 7\nw4 X a\nw5 Y b\n\nw6 X b\n"
XNLI = (
    b"premise\thypothesis\tlabel\n"
    b"It rains .\tIt is wet .\t0\nIt rains .\tIt is dry .\t2\nHi .\tHo .\t1\n"
)
META = b"promptID\tgenre\n1\tx\n1\tx\n2\tx\n"
TRANSLATIONS = b"source\ttarget\nw4 w5\tw6\nw7\tw8 w9\n"
PLAIN_TEXT = (
    b"w4 w5 windowed language models " * 20 + b"\n\n" + b"w5 w6 another document " * 20 + b"\n"
)

MIXED_ROWS_DECLARATION = b"""name = "mine"
format = "csv"
files = "all.csv"
splits = { dev = "validation" }
[columns]
text = "text"
label = "label"
language = "lang"
split = "part"
id = "id"
group = "template"
"""

DECLARED_SAMPLES = (
    declared_sample("texts in csv", "csv", 'text = "review"\nlabel = "stars"', TEXTS, "bert"),
    declared_sample(
        "texts with all keys",
        "csv",
        'text = "review"\nlabel = "stars"',
        TEXTS,
        "bert",
        'labels = ["a", "b"]\nlanguages = ["de"]\naligned = true\ndivision = 2\n'
        'label_map = { a = "b", b = "a" }\nsplits = { dev = "dev", test = "test" }',
    ),
    declared_sample(
        "pairs in tsv",
        "tsv",
        'text = "one"\npair = "two"\nlabel = "same"',
        PAIRS,
        "bert",
        "aligned = true",
    ),
    declared_sample(
        "words in jsonl", "jsonl", 'words = "tokens"\nlabels = "tags"', WORDS, "bert-tokens"
    ),
    declared_sample(
        "choices in jsonl",
        "jsonl",
        'context = "stem"\nchoices = "options"\nanswer = "right"',
        CHOICES,
        "gpt2-lm",
    ),
    declared_sample(
        "texts to generate in tsv", "tsv", 'text = "from"\ntarget = "to"', TARGETS, "marian"
    ),
    declared_sample("texts alone in csv", "csv", 'text = "text"', TEXTS_ALONE, "gpt2-lm"),
    declared_sample("CoNLL-U", "conllu", 'words = "FORM"\nlabels = "UPOS"', CONLLU_SENTENCES, ""),
    declared_sample(
        "one token a line", "conll", 'words = "1"\nlabels = "3"', TOKENS, "bert-tokens"
    ),
    TaskSample(
        "languages and splits in columns",
        {
            "all.csv": MIXED_ROWS,
            DECLARATION: MIXED_ROWS_DECLARATION,
        },
        family="bert",
    ),
)
BUILT_IN = (
    TaskSample("xnli", {"d/xnli/de.dev.tsv": XNLI, "d/xnli/en.dev.tsv": XNLI}, "xnli", "d"),
    TaskSample(
        "xnli's prompts", {"d/xnli/meta.dev.tsv": META, "d/xnli/en.dev.tsv": XNLI}, "xnli", "d"
    ),
    TaskSample("udpos", {"d/ud/de.dev.conllu": CONLLU_SENTENCES}, "udpos", "d"),
    TaskSample("translation", {"d/mt/en-de.dev.tsv": TRANSLATIONS}, "translation", "d", "marian"),
    TaskSample("lm", {"d/lm/de.dev.txt": PLAIN_TEXT}, "lm", "d", "gpt2-lm"),
    TaskSample(
        "lm on WikiText",
        {"d/wikitext2/valid.txt": b" = Title = \n\n" + PLAIN_TEXT},
        "lm",
        "d",
        "gpt2-lm",
    ),
)
SAMPLES = (*DECLARED_SAMPLES, *BUILT_IN)
