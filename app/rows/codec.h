#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "app/rows/openai.h"
#include "app/rows/row.h"
#include "app/rows/sampling_defaults.h"
#include "engine/text/tokenizer.h"
#include "jobs/generator.h"

namespace tokenmill::rows {

/// Renders a chat with the model's template. Throws BadRow when the template refuses the chat. Thread-safe.
using ChatRenderer = std::function<std::string(const text::ChatRequest&)>;

struct CodecOptions {
  SamplingDefaults defaults;             ///< job over model
  int64_t vocab_size = 0;                ///< of the model: bounds token ids
  uint64_t seed = 0;                     ///< of the job
  std::vector<std::string> passthrough;  ///< members of native rows repeated in their results
  int64_t max_record_bytes = 0;          ///< for the message of oversized records
  OpenAiContext openai;
  /// Rows whose custom_id an earlier row has, and that row's number: each becomes an error row. See id_census.h.
  std::unordered_map<int64_t, int64_t> repeated_custom_ids;
};

/// Records of all supported formats to RowItems. What a row becomes depends on its bytes, its number and the options
/// only. Thread-safe.
class Codec final : public jobs::RowCodec {
 public:
  /// tokenizer outlives the codec. render_chat may be empty: rows with messages are errors then.
  Codec(const text::Tokenizer& tokenizer, ChatRenderer render_chat, CodecOptions options);

  std::unique_ptr<jobs::WorkItem> encode(const jobs::RecordSource& source, std::string_view record) const override;

  /// The result line of an item: from its own error, the output's error, or the output.
  jobs::FinishedRow format(const RowItem& item, const RequestOutput& output) const;
  /// The result line of an item that carries an error.
  jobs::FinishedRow format_error(const RowItem& item, const RowError& error) const;

 private:
  void read(const jobs::RecordSource& source, std::string_view record, RowItem& item) const;
  std::vector<int32_t> tokens_of(const ParsedRow& row) const;
  uint64_t random_key_of(const ParsedRow& row, int64_t number) const;

  const text::Tokenizer& tokenizer_;
  ChatRenderer render_chat_;
  CodecOptions options_;
};

/// 32 hexadecimal digits of a record's bytes (XXH3, 128 bits): what request ids of OpenAI answers are made of.
std::string record_digest(std::string_view record);

}  // namespace tokenmill::rows
