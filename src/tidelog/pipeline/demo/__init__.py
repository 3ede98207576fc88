"""The main job on real data, as `make demo` runs it: real clients in, a log on disk, Spark and Delta tables out.

    every flight out of New York in 2013 --confluent-kafka--> tidelog --Spark--> Delta --> two answers and a picture

`__main__` runs the stages; each other module is one of them.
"""
