#pragma once
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "app/rows/codec.h"
#include "engine/text/tokenizer_loader.h"
#include "io/file.h"

/// Rows against the 272-entry byte tokenizer (ids below 256 are bytes), without a model.
namespace tokenmill::test {

using namespace tokenmill::rows;

inline const text::Tokenizer& tiny_tokenizer() {
  static const text::Tokenizer tokenizer = text::load_tokenizer_json(
      io::parse_json_file(std::string(TM_TEST_DATA) + "/cases/tiny_bpe.json"), {}, "tiny_bpe.json");
  return tokenizer;
}

inline CodecOptions options() {
  return {.vocab_size = 272, .max_model_len = 256, .seed = 7, .max_record_bytes = 1024, .openai = {"tiny", 0}};
}

inline Codec codec(CodecOptions with = options()) {
  return Codec(
      tiny_tokenizer(),
      [](const text::ChatRequest& chat, const std::string&) {
        std::string text;
        for (const io::JsonValue& message : chat.messages.items()) {
          if (message.at("role").as_string() == "wizard")
            throw BadRow{"invalid_request", "messages", "unknown role: wizard"};
          text += message.at("role").as_string() + ":" + message.at("content").as_string() + "\n";
        }
        return text;
      },
      std::move(with));
}

inline std::unique_ptr<RowItem> encode(const Codec& codec, std::string_view record, int64_t row = 0) {
  auto item = codec.encode({.row = row, .file = "in.jsonl", .line = row + 1, .oversized_bytes = 0}, record);
  return std::unique_ptr<RowItem>(dynamic_cast<RowItem*>(item.release()));
}

/// "field: message" of a row that must fail; "" when it does not.
inline std::string error_of(std::string_view record, CodecOptions with = options()) {
  const auto item = encode(codec(std::move(with)), record);
  return item->error ? item->error->field + ": " + item->error->message : "";
}

inline Request request_of(std::string_view record, CodecOptions with = options()) {
  const auto item = encode(codec(std::move(with)), record);
  REQUIRE_MESSAGE(!item->error, (item->error ? item->error->message : ""));
  return item->request;
}

inline RequestOutput answer(const std::string& text, FinishReason reason = FinishReason::kStop) {
  RequestOutput output;
  output.outputs.push_back({.index = 0,
                            .text = text,
                            .token_ids = {5, 6},
                            .finish_reason = reason,
                            .stop_reason = std::monostate{},
                            .cumulative_logprob = -3.25});
  output.num_prompt_tokens = 9;
  output.num_completion_tokens = 2;
  return output;
}

inline std::vector<std::string> lines_of(const std::string& name) {
  std::vector<std::string> lines(1);
  for (const char c : io::read_file(std::string(TM_TEST_DATA) + "/cases/" + name, 1 << 20))
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += c;
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace tokenmill::test
