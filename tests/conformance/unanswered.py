"""What dashboards of Kafka ask and a tidelog cluster does not answer: a metric's name or a panel's, and why."""

from typing import Final

_NO_QUEUE: Final = (
    "An answer is written in the turn of the event loop in which it is made: there is no queue of responses."
)
_CONFLUENT: Final = "Confluent's own server alone has it."
_NO_CONVERSION: Final = "Records are never converted to another format."

UNANSWERED: Final[dict[str, str]] = {
    "kafka_network_requestmetrics_responsequeuetimems": _NO_QUEUE,
    "kafka_network_requestmetrics_responsequeuetimems_count": _NO_QUEUE,
    "kafka_network_requestmetrics_responsesendtimems": _NO_QUEUE,
    "kafka_network_requestmetrics_responsesendtimems_count": _NO_QUEUE,
    "kafka_network_acceptor_acceptorblockedpercent": "Connections are accepted by the event loop, not by a thread.",
    "kafka_network_requestmetrics_deprecatedrequestspersec_fiveminuterate": "Kafka 4 has it no more.",
    "kafka_server_kafkarequesthandlerpool_controlplanerequesthandleravgidlepercent": "Kafka 4 has it no more.",
    "kafka_server_brokertopicmetrics_fetchmessageconversionspersec": _NO_CONVERSION,
    "kafka_server_brokertopicmetrics_producemessageconversionspersec": _NO_CONVERSION,
    "kafka_server_brokertopicmetrics_fetchmessageconversions_total": _NO_CONVERSION,
    "kafka_server_brokertopicmetrics_producemessageconversions_total": _NO_CONVERSION,
    "kafka_server_replicafetchermanager_minfetchrate": "Fetchers ask when there is something to ask for.",
    "kafka_server_replicamanager_straypartitionscount": _CONFLUENT,
    "kafka_server_replicamanager_straypartitionsmisclassifiedcount": _CONFLUENT,
    "kafka_server_replicamanager_straypartitionstotalsize": _CONFLUENT,
    "kafka_log_log_tiersize": _CONFLUENT,
    "kafka_tier_tasks_archive_tierarchiver_bytespersec": _CONFLUENT,
    "kafka_tier_tasks_archive_tierarchiver_retriespersec": _CONFLUENT,
    "kafka_tier_tasks_archive_tierarchiver_totallag": _CONFLUENT,
    "kafka_tier_tasks_tiertasks_numpartitionsinerror": _CONFLUENT,
    "kafka_server_transaction_coordinator_metrics_transaction_timeout_count": _CONFLUENT,
    "kafka_server_transaction_coordinator_metrics_transaction_timeout_rate": _CONFLUENT,
    "kafka_server_transaction_coordinator_metrics_transaction_state_error_count": _CONFLUENT,
    "kafka_server_transaction_coordinator_metrics_prepare_commit_to_complete_commit_latency": _CONFLUENT,
    "kafka_server_sessionexpirelistener_zookeeperauthfailurespersec": "A session that may not enter ends the start.",
    "kafka_server_sessionexpirelistener_zookeeperauthfailures_total": "A session that may not enter ends the start.",
    "Zookeeper connections": "The panel asks for a quantile of a counter, which Kafka's counters do not have either.",
}

_OTHERS: Final = "It comes from another exporter, which runs beside brokers of any kind."
OF_OTHERS: Final[dict[str, str]] = {
    "container_": f"{_OTHERS} Kubernetes' own, of containers.",
    "kubelet_": f"{_OTHERS} Kubernetes' own, of volumes; tidelog_log_dir_free_bytes tells the room on disks.",
    "node_": f"{_OTHERS} node_exporter, of machines.",
    "zookeeper_": f"{_OTHERS} That of ZooKeeper's servers.",
    "num_alive_": f"{_OTHERS} That of ZooKeeper's servers.",
    "leader_uptime": f"{_OTHERS} That of ZooKeeper's servers.",
    "jvm_": "There is no Java: process_resident_memory_bytes and python_gc_collections_total are what there is.",
    "java_lang_": "There is no Java: process_cpu_seconds_total and process_resident_memory_bytes are what there is.",
}
"""Beginnings of names that are no broker's to serve, and why."""
