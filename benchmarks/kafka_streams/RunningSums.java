import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/** The sum of a product's quantities, as it is after each of its records. See {@link Application}. */
public final class RunningSums {
  public static void main(String[] args) throws Exception {
    Application.run(args, RunningSums::topology);
  }

  private static Topology topology(String input, String output, Runnable processed) {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, byte[]> stock = builder.stream(input);
    stock
        .peek((key, event) -> processed.run())
        .groupByKey()
        .aggregate(
            () -> 0L,
            (key, event, total) -> total + Json.read(event).get("quantity").asLong(),
            Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("totals")
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.Long())
                .withCachingDisabled()) // a cache would leave out sums that are followed by others
        .toStream()
        .mapValues(total -> Json.write(Json.object().put("total", total)))
        .to(output);
    return builder.build();
  }
}
