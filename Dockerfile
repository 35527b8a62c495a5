# syntax=docker/dockerfile:1
# Both images, for amd64 and arm64:
#   docker buildx build --platform linux/amd64,linux/arm64 --target operator -t REGISTRY/agentsession:TAG .
#   docker buildx build --platform linux/amd64,linux/arm64 --target sandbox -t REGISTRY/agentsession-sandbox:TAG .

FROM rust:1.95-bookworm AS build
ARG TARGETARCH
WORKDIR /src
# The image's own toolchain, whatever rust-toolchain.toml would fetch.
ENV RUSTUP_TOOLCHAIN=1.95.0
COPY . .
ENV CARGO_TARGET_DIR=/target
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/target,id=target-$TARGETARCH \
	cargo build --locked --release -p agentsession \
	&& mkdir -p /out \
	&& cp /target/release/agentsession /out/ \
	&& cp "$(e2e/sandbox-build)" /out/agentsession-sandbox

FROM debian:bookworm-slim AS operator
# Certificates of public authorities, for a database that is reached by TLS.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/agentsession /agentsession
USER 65532:65532
ENTRYPOINT ["/agentsession"]

# Static: it is copied into Pods of any image and runs there.
FROM scratch AS sandbox
COPY --from=build /out/agentsession-sandbox /agentsession-sandbox
USER 65532:65532
ENTRYPOINT ["/agentsession-sandbox"]
