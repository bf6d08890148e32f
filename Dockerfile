# The service in an image: make image, or docker build . at the root of the tree. What is done stands in
# k8s/image/build.sh, which make test-image runs without a container.
#
# A tag can change under one's feet, a digest cannot: build what you run with
#   PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:DIGEST make image
# where DIGEST is what your registry shows for that tag on the day you look it over. None is written here, since one
# that nobody renews keeps the security holes of its day.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PYTHON=python3.11 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
# Dependencies first: their layers stay as they are until a lock changes.
COPY k8s/image/build.sh k8s/image/bytecode.py k8s/image/
COPY requirements.lock requirements-dev.lock ./
RUN sh k8s/image/build.sh download /wheels
COPY pyproject.toml README.md LICENSE kvindexer_client.py kvindexer_ray.py ./
COPY indexer indexer
COPY api api
COPY schemas schemas
RUN sh k8s/image/build.sh wheel /wheels
RUN sh k8s/image/build.sh install /wheels /opt/kvindexer

FROM ${PYTHON_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kvindexer" \
      org.opencontainers.image.description="Which LLM engine holds how much of a prompt's prefix, and how far that can be trusted" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The base image has the standard library without bytecode, and each start would compile it anew where the root file
# system cannot be written. And nothing is installed from here on.
COPY k8s/image/build.sh k8s/image/bytecode.py /opt/image/k8s/image/
RUN python3.11 -m pip uninstall --yes --quiet --root-user-action ignore pip setuptools wheel \
 && PYTHON=python3.11 sh /opt/image/k8s/image/build.sh compile /usr/local/lib/python3.11
COPY --from=build /opt/kvindexer /opt/kvindexer
ENV PATH=/opt/kvindexer/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# By number, so that runAsNonRoot can be checked; it needs no name, no folder of its own and no file that it can write.
USER 65532:65532
WORKDIR /
EXPOSE 8080 50051 9002
STOPSIGNAL SIGTERM
# Of use where there is no Kubernetes, whose probes ask for themselves. KVINDEXER_URL as for the commands.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as web; web.urlopen(os.environ.get('KVINDEXER_URL', 'http://127.0.0.1:8080') + '/healthz', timeout=4)"]
# The process itself is what gets SIGTERM: no shell stands before it. Arguments replace `serve --host 0.0.0.0`, which
# listens for whoever reaches the container.
ENTRYPOINT ["kvindexer"]
CMD ["serve", "--host", "0.0.0.0"]
