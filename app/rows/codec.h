#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "app/rows/openai.h"
#include "app/rows/prompt.h"
#include "app/rows/row.h"
#include "app/rows/words.h"
#include "engine/text/tokenizer.h"
#include "jobs/generator.h"

namespace tokenmill::rows {

struct CodecOptions {
  RowSettings defaults;       ///< job over model
  int64_t vocab_size = 0;     ///< the model's: bounds the ids that rows name
  int64_t max_model_len = 0;  ///< prompt and answer at most
  int64_t max_logprobs = kDefaultMaxLogprobs;
  Overlong overlong = Overlong::kError;
  ThinkingMarkers thinking;              ///< empty: the model has none
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

  void resume(jobs::WorkItem& item, std::string_view partial) const override;
  /// Keeps the id, as far as a scan finds one.
  std::unique_ptr<jobs::WorkItem> refuse(const jobs::RecordSource& source, std::string_view record,
                                         const std::string& reason) const override;

  /// The result line of an item: from its own error, the output's error, or the output.
  jobs::FinishedRow format(const RowItem& item, const RequestOutput& output) const;
  /// The result line of an item that carries an error.
  jobs::FinishedRow format_error(const RowItem& item, const RowError& error) const;
  /// The result line of an item that is skipped.
  jobs::FinishedRow format_skipped(const RowItem& item) const;

  /// Rows of this codec whose prompt `overlong` cut or skipped.
  int64_t num_truncated() const { return num_truncated_; }
  int64_t num_cut_to_one() const { return num_cut_to_one_; }  ///< of those: max_tokens left no more
  int64_t num_skipped() const { return num_skipped_; }

 private:
  std::unique_ptr<RowItem> new_item(const jobs::RecordSource& source) const;
  io::JsonValue parse(const jobs::RecordSource& source, std::string_view record, RowItem& item) const;
  void read(const jobs::RecordSource& source, std::string_view record, RowItem& item) const;
  void check_row(ParsedRow& row, const jobs::RecordSource& source) const;
  void check_prompt(const ParsedRow& row, const PromptTokens& prompt) const;
  void limit_prompt(const ParsedRow& row, PromptTokens& prompt, RowItem& item) const;
  void keep_for_answer(const ParsedRow& row, const PromptTokens& prompt, RowItem& item) const;
  uint64_t random_key_of(const ParsedRow& row, int64_t number) const;

  const text::Tokenizer& tokenizer_;
  ChatRenderer render_chat_;
  CodecOptions options_;
  mutable std::atomic<int64_t> num_truncated_{0}, num_cut_to_one_{0}, num_skipped_{0};
};

/// 32 hexadecimal digits of a record's bytes (XXH3, 128 bits): what request ids of OpenAI answers are made of.
std::string record_digest(std::string_view record);

}  // namespace tokenmill::rows
