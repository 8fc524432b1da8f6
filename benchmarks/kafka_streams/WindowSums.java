import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.WindowStore;

/** The sum of a product's quantities per hour, once, when the hour and its grace are over. See {@link Application}. */
public final class WindowSums {
  public static void main(String[] args) throws Exception {
    Application.run(args, WindowSums::topology);
  }

  private static Topology topology(String input, String output, Runnable processed) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, byte[]> stock = builder.stream(input);
    stock
        .peek((key, event) -> processed.run())
        .groupByKey()
        .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofHours(1), Duration.ofMinutes(10)))
        .aggregate(
            () -> 0L,
            (key, event, total) -> total + Json.read(event).get("quantity").asLong(),
            Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("totals")
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long())
                // a cache hands sums on in another order: time could close a window before its last sum has come,
                // which then goes out as a second final one
                .withCachingDisabled())
        .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
        .toStream()
        .map((window, total) -> KeyValue.pair(window.key(), value(window, total)))
        .to(output);
    return builder.build();
  }

  /** The product's columns, those of the window, and the sum. */
  private static byte[] value(Windowed<String> window, long total) {
    ObjectNode value = Json.readObject(window.key());
    value.put("window_start", window.window().start());
    value.put("window_end", window.window().end());
    return Json.write(value.put("total", total));
  }
}
