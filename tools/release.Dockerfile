# The container image of a release, which goreleaser builds: the program, and the certificates of public authorities.
FROM scratch
COPY .cache/release/ca-certificates.crt /etc/ssl/certs/
COPY LICENSE NOTICE .cache/release/THIRD_PARTY.md /usr/share/doc/holdfast/
COPY holdfast /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/holdfast"]
