#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "io/hdf5_writer.h"
#include "io/json.h"

namespace tokenmill::rows {

/// Logprobs of all entries of a table in one group: values, ids, ranks and positions have an element for each score,
/// offsets says where an entry's begin. The first score of a position is its own token's.
class ScoreColumns {
 public:
  /// group: "/samples/logprobs"; entries and token: what an entry and a position are, for the attributes.
  ScoreColumns(io::Hdf5Writer& file, const std::string& group, const std::string& entries, const std::string& token);

  /// The scores of the entry that end_entry() ends, in any shape that results have (logprobs.h). token_ids: its tokens,
  /// which OpenAI's shapes do not say; may be empty.
  void add(const io::JsonValue& scores, std::span<const int32_t> token_ids);
  void end_entry() { offsets_.append(values_.size()); }

 private:
  void add_native(const io::JsonValue& positions);
  void add_flat(const io::JsonValue& lists);
  void add_chat(const io::JsonValue& content, std::span<const int32_t> token_ids);
  void add_completion(const io::JsonValue& lists, std::span<const int32_t> token_ids);
  void append(const io::JsonValue* logprob, int64_t id, int64_t rank, size_t position);

  io::Hdf5Numbers<float>& values_;
  io::Hdf5Numbers<int32_t>&ids_, &ranks_, &positions_;
  io::Hdf5Numbers<int64_t>& offsets_;
};

}  // namespace tokenmill::rows
