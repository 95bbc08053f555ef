#pragma once
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/models/loader.h"
#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

namespace tokenmill::test {

/// A sink of one part that remembers the bytes it was given; throws when they do not ascend in whole units from
/// `begin`.
class RecordingSink : public WeightSink {
 public:
  explicit RecordingSink(int64_t granularity, int64_t begin = 0) : granularity_(granularity), next_(begin) {}
  void write(int part, int64_t offset, std::span<const std::byte> bytes) override {
    const auto size = static_cast<int64_t>(bytes.size());
    if (finished || part != 0 || offset != next_ || offset % granularity_ != 0 || size % granularity_ != 0 || size == 0)
      throw Error(ErrorKind::kInternal, "bytes [{}, {}) of part {} are not wanted here", offset, offset + size, part);
    if (fails_at >= 0 && offset + size > fails_at) throw Error(ErrorKind::kDevice, "out of sink memory");
    next_ = offset + size;
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  int64_t granularity(int) const override { return granularity_; }
  void finish() override { finished = true; }
  void adopt() override {}
  const std::string& bytes() const { return bytes_; }
  bool finished = false;
  int64_t fails_at = -1;  ///< byte of the tensor; -1: never

 private:
  int64_t granularity_, next_;
  std::string bytes_;
};

inline std::string noise(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

/// Files of tensors with random bytes: the same on every rank that makes it from the same seed.
class TensorFiles {
 public:
  /// Rows are `unit` bytes. Writes the files when `write`.
  TensorFiles(const std::string& directory, unsigned seed, bool write) : random_(seed) {
    for (int f = 0; f < 3; ++f) {
      const std::string path = directory + "/part-" + std::to_string(f) + ".bin";
      std::string contents = noise(random_() % 100, seed + static_cast<unsigned>(f));  // a header that nobody wants
      for (int t = 0; t < 6; ++t) {
        WeightSource& source = sources_.emplace_back();
        source.name = source.stored_name = "tensor-" + std::to_string(f) + "." + std::to_string(t);
        source.file = path;
        units_.push_back(1 + static_cast<int64_t>(random_() % 120));
        source.offset = static_cast<int64_t>(contents.size());
        source.num_bytes = units_.back() * static_cast<int64_t>(random_() % 40);
        contents_.push_back(noise(static_cast<size_t>(source.num_bytes), static_cast<unsigned>(random_())));
        contents += contents_.back();
      }
      if (write) std::ofstream(path, std::ios::binary) << contents;
    }
  }
  const std::vector<WeightSource>& sources() const { return sources_; }
  int64_t unit(size_t tensor) const { return units_[tensor]; }
  const std::string& contents(size_t tensor) const { return contents_[tensor]; }

 private:
  std::mt19937 random_;
  std::vector<WeightSource> sources_;
  std::vector<int64_t> units_;
  std::vector<std::string> contents_;
};

/// A random choice of tensors and rows of them, with sinks that know what they must get.
class RandomPlan {
 public:
  RandomPlan(const TensorFiles& files, unsigned seed, int num_entries) : files_(files) {
    std::mt19937 random(seed);
    for (int i = 0; i < num_entries; ++i) {
      const size_t tensor = random() % files.sources().size();
      const int64_t unit = files.unit(tensor), rows = files.sources()[tensor].num_bytes / unit;
      const int64_t granularity = random() % 3 == 0 && unit % 2 == 0 ? unit / 2 : unit;
      int64_t begin = 0, end = rows;
      if (random() % 2 == 0 && rows > 0) {
        begin = static_cast<int64_t>(random() % static_cast<unsigned>(rows));
        end = begin + static_cast<int64_t>(random() % static_cast<unsigned>(rows - begin + 1));
      }
      sinks_.push_back(std::make_unique<RecordingSink>(granularity, begin * unit));
      plan_.entries.push_back({&files.sources()[tensor], sinks_.back().get(), 0, begin * unit, end * unit});
      tensors_.push_back(tensor);
    }
  }
  const WeightPlan& plan() const { return plan_; }
  RecordingSink& sink(size_t i) { return *sinks_[i]; }
  size_t size() const { return sinks_.size(); }
  void check_complete() const {
    for (size_t i = 0; i < sinks_.size(); ++i) {
      const WeightPlan::Entry& entry = plan_.entries[i];
      CHECK(sinks_[i]->finished);
      CHECK((sinks_[i]->bytes() ==
             files_.contents(tensors_[i])
                 .substr(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.end - entry.begin))));
    }
  }

 private:
  const TensorFiles& files_;
  WeightPlan plan_;
  std::vector<std::unique_ptr<RecordingSink>> sinks_;
  std::vector<size_t> tensors_;
};

/// Bytes of the union of plans, by marking each byte: an independent count.
inline int64_t union_bytes(const std::vector<const WeightPlan*>& plans, const TensorFiles& files) {
  int64_t total = 0;
  for (size_t t = 0; t < files.sources().size(); ++t) {
    std::vector<bool> wanted(files.contents(t).size());
    for (const WeightPlan* plan : plans) {
      for (const WeightPlan::Entry& entry : plan->entries) {
        if (entry.source->name != files.sources()[t].name) continue;
        for (int64_t i = entry.begin; i < entry.end; ++i) wanted[static_cast<size_t>(i)] = true;
      }
    }
    for (const bool byte : wanted) total += byte ? 1 : 0;
  }
  return total;
}

}  // namespace tokenmill::test
