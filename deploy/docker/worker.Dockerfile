# A worker on CPUs, with the models that ship.
FROM node:24-bookworm-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional --ignore-scripts \
 && find node_modules/onnxruntime-node/bin/napi-v6 -mindepth 1 -maxdepth 1 ! -name linux -exec rm -rf {} +

FROM node:24-bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ffmpeg \
 && rm -rf /var/lib/apt/lists/*
ENV NODE_ENV=production MILLRACE_DATA_DIR=/data UV_THREADPOOL_SIZE=16
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY package.json models.json ./
COPY workers workers
COPY shared shared
COPY launcher launcher
COPY models models
RUN mkdir /data && chown node:node /data
USER node
EXPOSE 9101
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:9101/healthz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "launcher/cli.ts", "worker"]
