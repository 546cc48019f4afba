# Serves one model. The image does not contain it: mount the parent of the model folder.
#   docker build --tag demur .
#   docker run --read-only --tmpfs /tmp --volume "$PWD/models:/models:ro" --publish 127.0.0.1:8000:8000 demur
FROM python:3.12-slim AS build
# torch without CUDA is a tenth of the size; set another index if packages come from an internal mirror
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# additional packages that your own models need; models that were fitted on data frames need pandas
ARG MORE=pandas
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m venv /opt/demur \
    && /opt/demur/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --extra-index-url "${TORCH_INDEX}" --constraint constraints.txt ".[serve,report]" ${MORE}

FROM python:3.12-slim
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin demur
COPY --from=build /opt/demur /opt/demur
ENV PATH=/opt/demur/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
ENTRYPOINT ["demur"]
CMD ["serve", "/models/model", "--host", "0.0.0.0", "--port", "8000", "--drain-seconds", "5"]
