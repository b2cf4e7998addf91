"""A tiny model with the labels of the task, in a folder."""

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from headlab_myplugin.weather import DAYS, LABELS, WEATHER


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The folder of a BERT of two layers of three heads, whose weights are drawn."""
    words = {word for days in DAYS.values() for day in days for word in day.split()}
    for kinds in WEATHER.values():
        words |= {word for texts in kinds for text in texts for word in text.split()}
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *sorted(words)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    config = hf.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=3,
        max_position_embeddings=32,
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
    )
    torch.manual_seed(0)
    module = hf.BertForSequenceClassification(config)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5)
    path = tmp_path_factory.mktemp("model")
    module.save_pretrained(path)
    fast = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )
    fast.save_pretrained(path)
    return path
