import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** A product's events, handed on together: a hundred, or what there is after a minute. See {@link Application}. */
public final class EventBatches {
  private static final int COUNT = 100;
  private static final long AFTER_MS = 60_000;
  private static final String EVENTS = "events";
  private static final String BATCHES = "batches";
  private static final String TIMERS = "timers";

  public static void main(String[] args) throws Exception {
    Application.run(args, EventBatches::topology);
  }

  private static Topology topology(String input, String output, Runnable processed) {
    Topology topology = new Topology();
    topology.addSource("stock", input);
    topology.addProcessor("collect", () -> new Collect(processed), "stock");
    topology.addStateStore(store(EVENTS, Serdes.ByteArray()), "collect");
    topology.addStateStore(store(BATCHES, Batch.SERDE).withCachingEnabled(), "collect");
    topology.addStateStore(store(TIMERS, Serdes.String()), "collect");
    topology.addSink("out", output, "collect");
    return topology;
  }

  private static <V> StoreBuilder<KeyValueStore<String, V>> store(String name, Serde<V> values) {
    return Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), Serdes.String(), values);
  }

  /** What waits of a product: how many events, until when, and the largest timestamp among them. */
  private record Batch(int count, long dueMs, long timestamp) {
    static final Serde<Batch> SERDE =
        Serdes.serdeFrom(
            (topic, batch) -> batch == null ? null : batch.toBytes(),
            (topic, bytes) -> bytes == null ? null : fromBytes(ByteBuffer.wrap(bytes)));

    private byte[] toBytes() {
      return ByteBuffer.allocate(20).putInt(count).putLong(dueMs).putLong(timestamp).array();
    }

    private static Batch fromBytes(ByteBuffer bytes) {
      return new Batch(bytes.getInt(), bytes.getLong(), bytes.getLong());
    }

    Batch plus(long timestamp) {
      return new Batch(count + 1, dueMs, Math.max(this.timestamp, timestamp));
    }
  }

  /**
   * Each event is an entry of its own: a batch in one entry would be written anew with each event. Timers are
   * entries, too, in the order of their time: nobody looks through all products for those whose time has come.
   */
  private static final class Collect implements Processor<String, byte[], String, byte[]> {
    private final Runnable processed;
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, byte[]> events;
    private KeyValueStore<String, Batch> batches;
    private KeyValueStore<String, String> timers;
    private long streamTime = Long.MIN_VALUE;
    private String flushedUntil; // a scan from the begin would go through all that was deleted since

    Collect(Runnable processed) {
      this.processed = processed;
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
      this.context = context;
      this.events = context.getStateStore(EVENTS);
      this.batches = context.getStateStore(BATCHES);
      this.timers = context.getStateStore(TIMERS);
      context.schedule(Duration.ofMillis(1), PunctuationType.STREAM_TIME, this::flushDue);
    }

    @Override
    public void process(Record<String, byte[]> record) {
      String key = record.key();
      Batch batch = batches.get(key);
      if (batch != null && batch.dueMs <= streamTime) { // reached by another product's record
        flush(key, batch);
        batch = null;
      }
      streamTime = Math.max(streamTime, record.timestamp());
      if (batch == null) {
        batch = new Batch(0, record.timestamp() + AFTER_MS, record.timestamp());
        timers.put(timer(batch.dueMs, key), key);
      }
      events.put(entry(key, batch.count), selected(record.value()));
      batch = batch.plus(record.timestamp());
      if (batch.count == COUNT || batch.dueMs <= streamTime) {
        flush(key, batch);
      } else {
        batches.put(key, batch);
      }
      processed.run();
    }

    /** Runs between records, when stream time has risen: at the latest with the last record that was read. */
    private void flushDue(long now) {
      String until = timer(now + 1, "");
      try (KeyValueIterator<String, String> due = timers.range(flushedUntil, until)) {
        while (due.hasNext()) {
          String key = due.next().value;
          flush(key, batches.get(key));
        }
      }
      flushedUntil = until;
    }

    private void flush(String key, Batch batch) {
      ByteArrayOutputStream value = new ByteArrayOutputStream();
      value.writeBytes("{\"events\":".getBytes(StandardCharsets.UTF_8));
      char separator = '[';
      for (int number = 0; number < batch.count; number++) {
        value.write(separator);
        value.writeBytes(events.delete(entry(key, number)));
        separator = ',';
      }
      value.writeBytes("]}".getBytes(StandardCharsets.UTF_8));
      timers.delete(timer(batch.dueMs, key));
      batches.delete(key);
      context.forward(new Record<>(key, value.toByteArray(), batch.timestamp));
    }

    private static byte[] selected(byte[] value) {
      JsonNode event = Json.read(value);
      ObjectNode selected = Json.object();
      selected.set("quantity", event.get("quantity"));
      selected.set("note", event.get("note"));
      return Json.write(selected);
    }

    /** Milliseconds of this century have 13 digits: as texts they are sorted like numbers. */
    private static String timer(long dueMs, String key) {
      return dueMs + "#" + key;
    }

    private static String entry(String key, int number) {
      return key + "#" + number;
    }
  }
}
