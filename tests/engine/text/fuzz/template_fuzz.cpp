// Any bytes as a chat template: a template or Error(kConfig); a template gives text or an error, twice the same, all of
// it valid UTF-8, within its limits.
#include "engine/text/chat_template.h"
#include "engine/text/jinja.h"
#include "io/json.h"
#include "io/utf8.h"
#include "kernels/core/error.h"
#include "tests/io/fuzz/fuzz_input.h"

using namespace tokenmill;

namespace {

const jinja::Variables& variables() {
  static const jinja::Variables kVariables =
      io::parse_json(
          R"({"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "name": "naïve 日本 😀", "number": 7,
              "real": 2.5, "big": 123456789012345678901234567890, "nothing": null, "nums": [3, 1, 2], "words": ["b", "A"],
              "table": {"b": 2, "a": 1, "C": {"d": [1, {"e": null}]}}, "documents": null,
              "messages": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Hi <b>"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefghi", "type": "function",
                  "function": {"name": "f", "arguments": {"x": 1.0, "y": ["z"]}}}]},
                {"role": "tool", "content": "ok", "tool_call_id": "abcdefghi"},
                {"role": "user", "content": [{"type": "text", "text": "part"}]}],
              "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters":
                {"type": "object", "properties": {"q": {"type": ["string", "null"], "description": "\"é\""}}}}}]})",
          "variables")
          .members();
  return kVariables;
}

bool is_utf8(std::string_view text) { return io::find_invalid_utf8(text) == std::string_view::npos; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr jinja::CivilTime kNow = {2026, 7, 30, 13, 5, 9};
  const jinja::RenderLimits limits = {.max_work = 300'000, .max_output_bytes = 1 << 20};
  try {
    const jinja::Template parsed = jinja::Template::parse(test::as_text(data, size), "fuzz");
    (void)text::detect_content_format(parsed.root());
    const jinja::RenderResult result = parsed.render(variables(), kNow, limits);
    test::promise(is_utf8(result.text) && is_utf8(result.error), "text and messages are valid UTF-8");
    test::promise(result.text.empty() || result.error.empty(), "a text or an error, not both");
    test::promise(result.text.size() <= size_t{1} << 20, "text stays within its limit");
    const jinja::RenderResult again = parsed.render(variables(), kNow, limits);
    test::promise(again.text == result.text && again.error == result.error, "rendering is repeatable");
  } catch (const Error& error) {
    test::promise(error.kind() == ErrorKind::kConfig, "a refused template is a configuration error");
    test::promise(is_utf8(error.what()), "messages are valid UTF-8");
  }
  return 0;
}
