# Two stages: a static binary, and an image with nothing else in it: no shell, no
# package manager, not root.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.releaseVersion=${VERSION}" -o /out/fencepost ./cmd/fencepost \
 && mkdir -p /out/data

FROM scratch
# The authorities that upstreams are checked against.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/fencepost /fencepost
# The ledger of a SQLite configuration, and temporary files for large bodies.
COPY --from=build --chown=65532:65532 /out/data /data
ENV TMPDIR=/data
USER 65532:65532
WORKDIR /data
VOLUME /data
EXPOSE 8080 8081
# In a container every listener is reached from outside, so configure callers and
# admin.token: mount a file and start with `serve --config /etc/fencepost.yaml`.
ENTRYPOINT ["/fencepost"]
CMD ["serve", "--config", "/etc/fencepost.yaml"]
