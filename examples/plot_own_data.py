"""
How do I use examples of my own?
================================

A folder with CSV files and a declaration of a few lines is a task. Every row is checked when it is
read: an error names the file, the line and the column.
"""

import csv
import tempfile
from pathlib import Path

import headlab
from headlab.charts.head_map import head_map_chart
from headlab.pictures import map_of_scores

# %%
# Examples as they might stand in your files. The embedded model knows commands for
# a home.

ROOMS = ["kitchen", "bedroom", "hall", "garage", "office", "garden"]
SENTENCES = {
    "on": "turn on the light in the {}",
    "off": "switch off everything in the {}",
    "bright": "set the brightness in the {} to 40 percent",
}
folder = Path(tempfile.mkdtemp())
for split in ("dev", "test"):
    with (folder / f"en.{split}.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["command", "what"])
        for label, sentence in SENTENCES.items():
            rows.writerows([sentence.format(f"{split} {room}"), label] for room in ROOMS)

# %%
# The declaration says what the columns mean, and which of the model's classes is which label; it is
# not needed where both have the same names.

declaration = folder / "commands.toml"
declaration.write_text(
    """\
name = "commands"
format = "csv"
files = "{language}.{split}.csv"
label_map = { on = "turn_on", off = "turn_off", bright = "set_light" }

[columns]
text = "command"
label = "what"
"""
)
task = headlab.task(str(declaration))
print(task.name, task.languages, task.labels)

# %%
# From here on it is a task like any other. Gradient importance takes one pass forward and one back
# for each example: it is without a sign, for a first look.

model = headlab.load("e5-small-intents")
print(headlab.evaluate(model, task, split="test"))
scores = headlab.score(model, task, method="gradient")
chart = head_map_chart("Gradient importance on my own commands", map_of_scores(scores))
