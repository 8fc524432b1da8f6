import java.time.Duration;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * At most one quantity per product and half a minute, the newest; at most 1000 products of a partition wait. See
 * {@link Application}.
 */
public final class RateLimit {
  public static void main(String[] args) throws Exception {
    Application.run(args, RateLimit::topology);
  }

  private static Topology topology(String input, String output, Runnable processed) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, byte[]> stock = builder.stream(input);
    stock
        .peek((key, event) -> processed.run())
        .mapValues(event -> Json.write(Json.object().set("quantity", Json.read(event).get("quantity"))))
        .groupByKey()
        // not a table of the topic, which passes over a quantity that is like the last one, nor a cache, which
        // passes over those that others follow: half a minute would begin with another record
        .reduce(
            (last, next) -> next,
            Materialized.<String, byte[], KeyValueStore<Bytes, byte[]>>as("quantities")
                .withCachingDisabled())
        .suppress(
            Suppressed.untilTimeLimit(
                Duration.ofSeconds(30), BufferConfig.maxRecords(1000).emitEarlyWhenFull()))
        .toStream()
        .to(output);
    return builder.build();
  }
}
