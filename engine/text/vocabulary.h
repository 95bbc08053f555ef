#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tokenmill::text {

/// Entries of a vocabulary by id and by spelling. Ids may have gaps.
class Vocabulary {
 public:
  /// Ids at and above this are refused: a damaged file must not ask for gigabytes.
  static constexpr int32_t kMaxSize = 1 << 22;

  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// Takes (token, id) pairs, ids in any order. Throws Error(kInput) starting with `where` for an id that is out of
  /// range or taken twice. A spelling that comes twice keeps the first id when repeated_spellings is true, else is
  /// refused.
  static Vocabulary build(std::vector<std::pair<std::string, int64_t>> entries, std::string_view where,
                          bool repeated_spellings = false);

  /// 1 + the largest id.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < size() && present_[static_cast<size_t>(id)]; }
  /// Spelling of an id that contains() knows.
  const std::string& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  std::optional<int32_t> find(std::string_view token) const {
    const auto it = ids_.find(token);
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
  }

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> present_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views into tokens_, whose elements never move
};

}  // namespace tokenmill::text
