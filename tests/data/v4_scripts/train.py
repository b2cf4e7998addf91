"""Fine-tune a sentiment classifier, then drop the heads that matter least."""

import argparse

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.pytorch_utils import find_pruneable_heads_and_indices, prune_linear_layer


def head_importance(model, loader, device):
    """The mean size of the loss's gradient by each head's mask."""
    config = model.config
    head_mask = torch.ones(config.num_hidden_layers, config.num_attention_heads, device=device)
    head_mask.requires_grad_(True)
    importance = torch.zeros_like(head_mask)
    for batch in loader:
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        outputs = model(**batch, head_mask=head_mask)
        outputs.loss.backward()
        importance += head_mask.grad.abs().detach()
        head_mask.grad = None
    return importance / len(loader)


def accuracy(model, loader, device, head_mask=None):
    """The share of right answers, with or without a mask."""
    right = seen = 0
    for batch in loader:
        labels = batch.pop("labels").to(device)
        inputs = {name: tensor.to(device) for name, tensor in batch.items()}
        if head_mask is not None:
            inputs["head_mask"] = head_mask
        with torch.no_grad():
            predicted = model(**inputs).logits.argmax(dim=-1)
        right += (predicted == labels).sum().item()
        seen += len(labels)
    return right / seen


def lowest_heads(importance, count):
    """{layer: heads} of the heads with the lowest importance."""
    heads = {}
    for index in importance.flatten().argsort()[:count].tolist():
        layer, head = divmod(index, importance.size(1))
        heads.setdefault(layer, []).append(head)
    return heads


class Classifier(torch.nn.Module):
    """An encoder with a layer of our own on top."""

    def __init__(self, encoder, classes):
        super().__init__()
        self.encoder = encoder
        self.out = torch.nn.Linear(encoder.config.hidden_size, classes)

    def forward(self, input_ids, attention_mask=None, head_mask=None):
        head_mask = self.encoder.get_head_mask(head_mask, self.encoder.config.num_hidden_layers)
        hidden = self.encoder(input_ids, attention_mask, None, None, head_mask)[0]
        return self.out(hidden[:, 0])

    def _prune_heads(self, heads_to_prune):
        for layer, heads in heads_to_prune.items():
            self.encoder.layer[layer].attention.prune_heads(heads)


def shrink_attention(attention, heads):
    """Cut heads out of one attention module."""
    heads, index = find_pruneable_heads_and_indices(
        heads, attention.num_attention_heads, attention.attention_head_size, set()
    )
    attention.query = prune_linear_layer(attention.query, index)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="bert-base-uncased")
    parser.add_argument("--prune", type=int, default=24)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForSequenceClassification.from_pretrained(options.model)
    loader = DataLoader(torch.load("dev.pt"), batch_size=32)
    importance = head_importance(model, loader, "cpu")
    mask = (importance > importance.flatten().sort().values[options.prune]).float()
    print("masked:", accuracy(model, loader, "cpu", head_mask=mask))
    if hasattr(model, "prune_heads"):
        model.prune_heads(lowest_heads(importance, options.prune))
    print("pruned:", model.config.pruned_heads)
    model.save_pretrained("pruned")
    tokenizer.save_pretrained("pruned")


if __name__ == "__main__":
    main()
