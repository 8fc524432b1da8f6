import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** The pipeline `availability` as a user of Kafka Streams writes it: emit on change. See {@link Application}. */
public final class Availability {
  private static final String STORE = "availability";

  public static void main(String[] args) throws Exception {
    Application.run(args, Availability::topology);
  }

  private static Topology topology(String input, String output, Runnable processed) {
    Topology topology = new Topology();
    topology.addSource("stock", input);
    topology.addProcessor("change", () -> new OnChange(processed), "stock");
    topology.addStateStore(
        Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.ByteArray()),
        "change");
    topology.addSink("out", output, "change");
    return topology;
  }

  /** Forwards a product's availability when it is another than the last one. */
  private static final class OnChange implements Processor<String, byte[], String, byte[]> {
    private static final byte[] TRUE = {1};
    private static final byte[] FALSE = {0};
    private final Runnable processed;
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, byte[]> store;

    OnChange(Runnable processed) {
      this.processed = processed;
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
      this.context = context;
      this.store = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<String, byte[]> record) {
      JsonNode event = Json.read(record.value());
      boolean isAvailable = event.get("quantity").asInt() > 0;
      byte[] before = store.get(record.key());
      if (before == null || (before[0] == 1) != isAvailable) {
        store.put(record.key(), isAvailable ? TRUE : FALSE);
        ObjectNode value = Json.object();
        value.set("storeId", event.get("storeId"));
        value.set("id", event.get("id"));
        value.put("isAvailable", isAvailable);
        context.forward(record.withValue(Json.write(value)));
      }
      processed.run();
    }
  }
}
