#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/support/random.h"

namespace tokenmill::test {

/// The --cpu-isa names this CPU offers. Says on stderr, once, which paths it lacks.
std::vector<std::string> cpu_isas();

/// One Ops per CPU instruction set this machine has (2 threads each) and per other device it has; alive until the end.
std::vector<Ops*> backends();

/// An emulated device: tests with much work do less of it there.
bool is_slow(const Ops& ops);

/// A backend of one instruction set with a number of threads.
std::unique_ptr<Ops> cpu_backend(const std::string& isa, int num_threads);

/// A second backend that is made as `ops` was.
std::unique_ptr<Ops> another(const Ops& ops);

/// What lies in memory of a device, waited for.
std::vector<std::byte> download(Ops& ops, const Buffer& buffer);

/// A linear (or embedding) of the values in w [out_features, in_features], pushed in uneven chunks. Owns its storage.
class TestLinear {
 public:
  TestLinear(Ops& ops, const HostTensor& w);
  const Linear& get() const { return *linear_; }

 private:
  Buffer storage_;
  std::unique_ptr<Linear> linear_;
};

class TestEmbedding {
 public:
  TestEmbedding(Ops& ops, const HostTensor& w);
  const Embedding& get() const { return *embedding_; }

 private:
  Buffer storage_;
  std::unique_ptr<Embedding> embedding_;
};

/// The spec of a matrix that lies whole in one tensor of its compute dtype.
LinearSpec plain_spec(int64_t out_features, int64_t in_features, DType dtype);

/// Pushes all bytes of a part in chunks of 1, 2, 3, ... granules.
void push(WeightSink& sink, int part, std::span<const std::byte> bytes);

}  // namespace tokenmill::test
