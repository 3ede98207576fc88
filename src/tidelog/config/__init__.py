"""The registry of settings with Kafka's names, and reading server.properties. Pure.

`registry` knows every setting; `broker_config.BrokerConfig` is what a broker's come to, `topic_config` what a topic's
do; `properties` reads the file; `reference` makes docs/configuration.md.
"""
