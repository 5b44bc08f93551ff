import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Two programs that are killed and started again by the test.
 *
 * feed: a transactional producer. Orders are numbered; each transaction has ten of them, and every third one is first
 * written, aborted, and written again. A new start goes on after the last committed order.
 *
 * totals: a Streams application with exactly_once_v2. It groups orders by region (a repartition topic), keeps count
 * and sum in a store (with its changelog), and writes both for every order: "count sum". So a region's results must be
 * counts from 1 on, each once.
 */
public class ExactlyOnce {
    static final int BATCH = 10;
    static final int CUSTOMERS = 40;
    static final int REGIONS = 6;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("feed")) {
            feed(arguments[1], arguments[2], Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]));
        } else {
            totals(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
        }
    }

    static void feed(String bootstrap, String topic, int orders, int pauseMs) throws Exception {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, "feed-" + topic);
        settings.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 10_000);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions(); // what an earlier process left open is aborted before the topic is read
            int next = lastCommitted(bootstrap, topic) + 1;
            System.out.println("feeding from " + next);
            for (; next < orders; next += BATCH) {
                if (next / BATCH % 3 == 0) {
                    producer.beginTransaction();
                    send(producer, topic, next, orders);
                    producer.flush();
                    producer.abortTransaction();
                }
                producer.beginTransaction();
                send(producer, topic, next, orders);
                producer.commitTransaction();
                Thread.sleep(pauseMs);
            }
        }
        System.out.println("fed");
    }

    static void send(KafkaProducer<String, String> producer, String topic, int first, int orders) {
        for (int order = first; order < Math.min(first + BATCH, orders); order++) {
            String customer = "customer-" + order % CUSTOMERS;
            producer.send(new ProducerRecord<>(topic, customer, order + " " + (order * 7 % 100)));
        }
    }

    static int lastCommitted(String bootstrap, String topic) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        int last = -1;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map((PartitionInfo found) -> new TopicPartition(topic, found.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = new HashMap<>(consumer.endOffsets(partitions));
            while (!ends.isEmpty()) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    last = Math.max(last, Integer.parseInt(record.value().split(" ")[0]));
                }
                ends.entrySet().removeIf(end -> consumer.position(end.getKey()) >= end.getValue());
            }
        }
        return last;
    }

    static void totals(String bootstrap, String application, String state, String input, String output)
            throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // a result for every order
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, -1);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6_000);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 10_000);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
            .selectKey((customer, order) -> "region-" + Integer.parseInt(customer.split("-")[1]) % REGIONS)
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .aggregate(() -> "0 0", (region, order, total) -> add(total, order),
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("totals")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()))
            .toStream().to(output, Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                .StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        System.out.println("running");
        Thread.currentThread().join();
    }

    static String add(String total, String order) {
        String[] parts = total.split(" ");
        return (Long.parseLong(parts[0]) + 1) + " " + (Long.parseLong(parts[1]) + Long.parseLong(order.split(" ")[1]));
    }
}
