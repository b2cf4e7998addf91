"""The All-attention Transformer: persistent vectors in the heads' place of the feed-forward layers."""
