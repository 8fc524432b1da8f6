import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Writes what Kafka Streams makes of random records in KStream-KStream joins, as JSON lines. Two records of the
 * key z at the end let all windows be over.
 */
public final class Joins {
    private static final String[] KINDS = {"inner", "left", "outer"};

    public static void main(final String[] args) throws Exception {
        final List<String> lines = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            lines.add(run(new Random(number), KINDS[number % 3]));
        }
        Files.write(Path.of(args[0]), lines);
    }

    private static String run(final Random random, final String kind) {
        final long before = random.nextInt(4) * 5L;
        final long after = random.nextBoolean() ? before : random.nextInt(4) * 5L;
        final long grace = random.nextInt(3) * 4L;
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> left = builder.stream("left", Consumed.with(Serdes.String(), Serdes.String()));
        final KStream<String, String> right = builder.stream("right", Consumed.with(Serdes.String(), Serdes.String()));
        // ofTimeDifferenceAndGrace is symmetric; before and after change one bound each
        final JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(before), Duration.ofMillis(grace))
            .after(Duration.ofMillis(after));
        final StreamJoined<String, String, String> stores =
            StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String());
        final KStream<String, String> joined;
        if (kind.equals("inner")) {
            joined = left.join(right, Joins::pair, windows, stores);
        } else if (kind.equals("left")) {
            joined = left.leftJoin(right, Joins::pair, windows, stores);
        } else {
            joined = left.outerJoin(right, Joins::pair, windows, stores);
        }
        joined.to("out");
        final Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "joins");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        // without it, a record waits up to a second of wall-clock time for its result
        settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings, Instant.EPOCH)) {
            // Out of order by no more than `grace`, or the stores' segments decide what is dropped; and by no more
            // than the window, or Kafka Streams emits a record without a match before `grace` is over.
            final long disorder = Math.min(grace, Math.min(before, after));
            return "{\"kind\":\"" + kind + "\",\"before\":" + before + ",\"after\":" + after + ",\"grace\":" + grace
                + "," + piped(driver, random, (int) disorder) + "}";
        }
    }

    private static String pair(final String left, final String right) {
        return "[" + left + "," + right + "]";
    }

    private static String piped(final TopologyTestDriver driver, final Random random, final int disorder) {
        final Serdes.StringSerde text = new Serdes.StringSerde();
        final List<TestInputTopic<String, String>> sides = new ArrayList<>();
        for (final String side : new String[] {"left", "right"}) {
            sides.add(driver.createInputTopic(side, text.serializer(), text.serializer()));
        }
        final TestOutputTopic<String, String> out =
            driver.createOutputTopic("out", text.deserializer(), text.deserializer());
        final List<String> input = new ArrayList<>();
        final List<String> output = new ArrayList<>();
        long time = 100;
        for (int number = 0; number < 42; number++) {
            // a few records jump far ahead, so that windows are over
            time += number > 39 ? 200 : random.nextInt(10) == 0 ? 30 : random.nextInt(4);
            final long timestamp = number >= 39 ? time + 200 : time - random.nextInt(disorder + 1);
            final int side = random.nextInt(2);
            final String key = number >= 39 ? "z" : String.valueOf((char) ('a' + random.nextInt(3)));
            final String value = random.nextInt(15) == 0 ? null : String.valueOf(number);
            input.add("{\"side\":" + side + ",\"key\":\"" + key + "\",\"value\":" + value + ",\"timestamp\":" + timestamp + "}");
            sides.get(side).pipeInput(new TestRecord<>(key, value, Instant.ofEpochMilli(timestamp)));
            for (final TestRecord<String, String> result : out.readRecordsToList()) {
                output.add("{\"key\":\"" + result.key() + "\",\"value\":" + result.value()
                    + ",\"timestamp\":" + result.timestamp() + "}");
            }
        }
        return "\"input\":[" + String.join(",", input) + "],\"output\":[" + String.join(",", output) + "]";
    }
}
