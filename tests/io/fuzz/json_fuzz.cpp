// Any bytes: a value or Error(kInput). A value writes text that parses to the same value and the same text again.
#include "io/json.h"
#include "io/utf8.h"
#include "kernels/core/error.h"
#include "tests/io/fuzz/fuzz_input.h"

using namespace tokenmill;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  io::JsonValue value;
  try {
    value = io::parse_json(test::as_text(data, size), "fuzz", {.max_depth = 64, .max_values = 100000});
  } catch (const Error& error) {
    test::promise(error.kind() == ErrorKind::kInput, "damaged JSON is an input error");
    test::promise(io::find_invalid_utf8(error.what()) == std::string::npos, "messages are valid UTF-8");
    return 0;
  }
  const std::string text = to_json(value);
  test::promise(io::find_invalid_utf8(text) == std::string::npos, "written JSON is valid UTF-8");
  const io::JsonValue again = io::parse_json(text, "written");
  test::promise(again == value && to_json(again) == text, "written JSON reads back the same");
  if (value.is_number()) (void)value.as_double(), (void)value.fits_int64(), (void)value.fits_uint64();
  return 0;
}
