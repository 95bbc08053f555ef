#pragma once
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "engine/request.h"

namespace tokenmill::app {

/// Finds requests that must have the same answer: equal prompt ids and sampling parameters, and equal random streams
/// unless nothing is drawn. Prompts are compared by 128 bits of XXH3.
class Duplicates {
 public:
  /// The request that is being computed and has this one's answer. Without one, this request is being computed from now
  /// on, until remove().
  std::optional<int64_t> find_or_add(const Request& request);
  /// The request has its answer.
  void remove(int64_t request_id);

 private:
  struct Key {
    uint64_t low = 0, high = 0;
    bool operator==(const Key&) const = default;
  };
  struct HashOf {
    size_t operator()(const Key& key) const { return key.low; }
  };
  struct Computed {
    int64_t request_id;
    SamplingParams sampling;
  };
  using Map = std::unordered_multimap<Key, Computed, HashOf>;
  static Key key_of(const Request& request);

  Map computed_;
  std::unordered_map<int64_t, Map::iterator> by_id_;
};

}  // namespace tokenmill::app
