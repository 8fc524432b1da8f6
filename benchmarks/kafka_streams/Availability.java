import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The pipeline `availability` as a user of Kafka Streams writes it: emit on change, exactly once, state in RocksDB.
 *
 * <p>Arguments: servers, input topic, output topic, application id, state folder, records to process. It ends when
 * so many records are processed and committed.
 */
public final class Availability {
  private static final String STORE = "availability";

  public static void main(String[] args) throws Exception {
    long records = Long.parseLong(args[5]);
    AtomicLong processed = new AtomicLong();
    CountDownLatch done = new CountDownLatch(1);
    KafkaStreams streams = new KafkaStreams(topology(args[1], args[2], processed, records, done), config(args));
    Throwable[] failure = new Throwable[1];
    streams.setUncaughtExceptionHandler(
        error -> {
          failure[0] = error;
          done.countDown();
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    streams.start();
    done.await();
    boolean closed = streams.close(Duration.ofMinutes(2)); // commits what is open
    if (failure[0] != null || !closed) {
      throw new IllegalStateException("Kafka Streams failed or did not close", failure[0]);
    }
    System.out.println(processed.get());
  }

  private static Properties config(String[] args) {
    Properties config = new Properties();
    config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    config.put(StreamsConfig.APPLICATION_ID_CONFIG, args[3]);
    config.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
    config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
    config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
    return config;
  }

  private static Topology topology(
      String input, String output, AtomicLong processed, long records, CountDownLatch done) {
    Topology topology = new Topology();
    topology.addSource("stock", Serdes.String().deserializer(), Serdes.ByteArray().deserializer(), input);
    topology.addProcessor("change", () -> new OnChange(processed, records, done), "stock");
    topology.addStateStore(
        Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.ByteArray()),
        "change");
    topology.addSink("out", output, Serdes.String().serializer(), Serdes.ByteArray().serializer(), "change");
    return topology;
  }

  /** Forwards a product's availability when it is another than the last one. */
  private static final class OnChange implements Processor<String, byte[], String, byte[]> {
    private static final byte[] TRUE = {1};
    private static final byte[] FALSE = {0};
    private final ObjectMapper mapper = new ObjectMapper();
    private final AtomicLong processed;
    private final long records;
    private final CountDownLatch done;
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, byte[]> store;

    OnChange(AtomicLong processed, long records, CountDownLatch done) {
      this.processed = processed;
      this.records = records;
      this.done = done;
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
      this.context = context;
      this.store = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<String, byte[]> record) {
      try {
        JsonNode event = mapper.readTree(record.value());
        boolean isAvailable = event.get("quantity").asInt() > 0;
        byte[] before = store.get(record.key());
        if (before == null || (before[0] == 1) != isAvailable) {
          store.put(record.key(), isAvailable ? TRUE : FALSE);
          ObjectNode value = mapper.createObjectNode();
          value.set("storeId", event.get("storeId"));
          value.set("id", event.get("id"));
          value.put("isAvailable", isAvailable);
          context.forward(record.withValue(mapper.writeValueAsBytes(value)));
        }
      } catch (java.io.IOException error) {
        throw new IllegalArgumentException("not JSON: " + record.key(), error);
      }
      if (processed.incrementAndGet() == records) {
        done.countDown();
      }
    }
  }
}
