"""One process that owns a device and a model: its live requests, its jobs and its client."""

from __future__ import annotations

from headlab.worker.client import Client as Client
from headlab.worker.schemas import Answer as Answer
from headlab.worker.schemas import AttentionRequest as AttentionRequest
from headlab.worker.schemas import Changed as Changed
from headlab.worker.schemas import EvaluateRequest as EvaluateRequest
from headlab.worker.schemas import ExampleCard as ExampleCard
from headlab.worker.schemas import Figure as Figure
from headlab.worker.schemas import Finding as Finding
from headlab.worker.schemas import Health as Health
from headlab.worker.schemas import JobRow as JobRow
from headlab.worker.schemas import LoadedModel as LoadedModel
from headlab.worker.schemas import LoadedPlayers as LoadedPlayers
from headlab.worker.schemas import NextToken as NextToken
from headlab.worker.schemas import SavedTask as SavedTask
from headlab.worker.schemas import Weights as Weights
