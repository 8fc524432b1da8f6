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

/**
 * What all programs here have in common: exactly once, state in RocksDB, two threads, and an end.
 *
 * <p>Arguments: servers, input topic, output topic, application id, state folder, records to process. It ends when
 * so many records are processed and committed, and prints how many.
 */
final class Application {
  /** Builds what a program does; `processed` is to be called once for each record of the input. */
  interface Definition {
    Topology topology(String input, String output, Runnable processed);
  }

  private Application() {}

  static void run(String[] args, Definition definition) throws Exception {
    long records = Long.parseLong(args[5]);
    AtomicLong processed = new AtomicLong();
    CountDownLatch done = new CountDownLatch(1);
    Runnable count =
        () -> {
          if (processed.incrementAndGet() == records) {
            done.countDown();
          }
        };
    KafkaStreams streams = new KafkaStreams(definition.topology(args[1], args[2], count), config(args));
    Throwable[] failure = new Throwable[1];
    streams.setUncaughtExceptionHandler(
        error -> {
          failure[0] = error;
          done.countDown();
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    streams.start();
    done.await();
    boolean closed = streams.close(Duration.ofMinutes(2)); // ends the last record, and commits what is open
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
    config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
    return config;
  }
}
