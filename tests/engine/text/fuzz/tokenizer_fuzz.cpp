// A tokenizer.json, a zero byte, a text. Whatever they hold, loading, encoding and decoding must end in a result or an
// Error, and decoding one id at a time must give the text of all at once.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/text/tokenizer_loader.h"
#include "io/json.h"
#include "io/utf8.h"
#include "kernels/core/error.h"

using namespace tokenmill;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view text = end == std::string_view::npos ? std::string_view("a <s>b") : input.substr(end + 1);
  try {
    const io::JsonValue json = io::parse_json(input.substr(0, end), "fuzz");
    const text::Tokenizer tokenizer = text::load_tokenizer_json(json, {}, "fuzz");
    const std::vector<int32_t> ids = tokenizer.encode(text);
    const std::string at_once = tokenizer.decode(ids);
    std::string one_by_one;
    text::Detokenizer detokenizer(tokenizer);
    for (const int32_t id : ids) detokenizer.push(id, one_by_one);
    detokenizer.finish(one_by_one);
    if (one_by_one != at_once || io::find_invalid_utf8(at_once) != std::string_view::npos) std::abort();
  } catch (const Error&) {
    // Refused with a reason.
  }
  return 0;
}
