import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;

/** JSON texts, read and written. */
final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  static JsonNode read(byte[] text) {
    try {
      return MAPPER.readTree(text);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  static ObjectNode readObject(String text) {
    try {
      return (ObjectNode) MAPPER.readTree(text);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  static ObjectNode object() {
    return MAPPER.createObjectNode();
  }

  static byte[] write(JsonNode value) {
    try {
      return MAPPER.writeValueAsBytes(value);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
