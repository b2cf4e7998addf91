# base -> test -> app.  Without GPU:
#
#   docker build -t headlab --build-arg TORCH_INDEX=<address of PyTorch's CPU index> .
#   docker run -p 127.0.0.1:8501:8501 -v headlab:/home/headlab/.cache headlab
#
# With NVIDIA GPUs: leave TORCH_INDEX out (the default torch wheel brings CUDA), or name PyTorch's index for
# your driver's CUDA version; BASE may name any image with Python 3.11 or newer.  Then
#
#   docker run --gpus all -p 127.0.0.1:8501:8501 -v headlab:/home/headlab/.cache headlab
#
# Under another host name than localhost:   docker run -e STREAMLIT_SERVER_ALLOWED_HOSTS="localhost app.example" ...
# As another user, whose home cannot be written:
#
#   docker run --user 12345 -e HEADLAB_CACHE=/data/results -e XDG_CACHE_HOME=/data -e HF_HOME=/data/hub \
#       -e MPLCONFIGDIR=/data/matplotlib -v DIR:/data ... headlab
#
# Tests, with a browser, in the image:   docker build --target test -t headlab-test . && docker run headlab-test

ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS base
ARG TORCH_INDEX=""
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 1000 headlab && install -d -o headlab -g headlab /app /home/headlab/.cache
WORKDIR /app
COPY requirements.txt requirements-nodeps.txt ./
RUN PIP_EXTRA_INDEX_URL="${TORCH_INDEX}" pip install -r requirements.txt \
    && pip install --no-deps -r requirements-nodeps.txt
COPY pyproject.toml setup.py README.md LICENSE NOTICE ./
COPY headlab headlab
RUN pip install --no-deps -e .

FROM base AS test
RUN apt-get update && apt-get install -y --no-install-recommends chromium git make && rm -rf /var/lib/apt/lists/*
COPY requirements-dev.txt ./
RUN pip install -r requirements-dev.txt
COPY --chown=headlab:headlab . .
USER headlab
CMD ["python", "-m", "pytest"]

FROM base AS app
# Results are written here, so the folder belongs to the user who runs; the demo's come with the package.
RUN install -d -o headlab -g headlab /app/cache
USER headlab
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
CMD ["headlab", "app", "--address=0.0.0.0"]
