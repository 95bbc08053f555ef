// A rank whose process dies while a checkpoint is loaded: loader_program FILE RANK, under mpiexec. FILE is any file;
// RANK is killed when it has taken its first chunk.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "engine/models/loader.h"

using namespace tokenmill;

namespace {

class Sink : public WeightSink {
 public:
  explicit Sink(bool dies) : dies_(dies) {}
  void write(int, int64_t, std::span<const std::byte>) override {
    if (dies_) std::raise(SIGKILL);
  }
  int64_t granularity(int) const override { return 1; }
  void finish() override {}
  void adopt() override {}

 private:
  bool dies_;
};

}  // namespace

int main(int, char** arguments) {
  parallel::MpiSession session(
      {.exit_code = [](ErrorKind) { return 4; },
       .print = [](const Error& error) { std::fprintf(stderr, "error: %s\n", error.what()); }});
  return session.guard([&] {
    WeightSource source;
    source.file = arguments[1];
    source.num_bytes = static_cast<int64_t>(std::filesystem::file_size(source.file));
    const parallel::Comm node = session.world().split_shared();
    Sink sink(session.world().rank() == std::atoi(arguments[2]));
    load_weights({{{&source, &sink, 0}}}, {&session.world(), &node}, {.reads = {.chunk_bytes = 100'000}});
    return 0;
  });
}
