"""OpenTelemetry spans of admin operations, where `tracing.otlp.endpoint` asks for them; loaded only then."""
