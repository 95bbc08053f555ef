#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/output_processor.h"

namespace tokenmill::test {

/// Token id -> piece of text. A piece that ends in '~' is an unfinished character: the mark is held back and dropped
/// when the next id completes it, and becomes '?' when nothing follows.
class FakeDecoder final : public TokenDecoder {
 public:
  explicit FakeDecoder(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  void append(int32_t token_id, std::string& text) override {
    std::string piece = pieces_.at(static_cast<size_t>(token_id));
    held_ = !piece.empty() && piece.back() == '~';
    if (held_) piece.pop_back();
    text += piece;
  }
  void finish(std::string& text) override {
    if (held_) text += '?';
  }

 private:
  std::vector<std::string> pieces_;
  bool held_ = false;
};

inline TokenDecoderFactory fake_decoders(std::vector<std::string> pieces) {
  return [pieces = std::move(pieces)](const Request&) { return std::make_unique<FakeDecoder>(pieces); };
}

}  // namespace tokenmill::test
