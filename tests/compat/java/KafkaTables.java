// Prints what a release of Apache Kafka is made of, one fact a line, for tests/compat/test_kafka_tables.py.

import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class KafkaTables {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values())
            System.out.println("error " + error.code() + " " + error.name().toLowerCase() + " " + (error.exception() instanceof RetriableException));
        for (String name : AbstractKafkaConfig.CONFIG_DEF.names())
            System.out.println("broker " + name);
        for (String name : LogConfig.configNames())
            System.out.println("topic " + name);
    }
}
