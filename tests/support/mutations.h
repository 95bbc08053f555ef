#pragma once
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "io/file.h"

namespace tokenmill::test {

/// What the mutation tests draw from.
using MutationRandom = std::mt19937_64;

inline size_t pick(MutationRandom& random, size_t below) { return static_cast<size_t>(random() % below); }

inline uint64_t environment_number(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

/// How long to go on: a fixed number of rounds, or TOKENMILL_FUZZ_SECONDS from the first round on.
class MutationRounds {
 public:
  explicit MutationRounds(int64_t rounds) : rounds_(rounds) {}
  bool timed() const { return seconds_ > 0; }
  /// Call once before every round; the clock is read every 64.
  bool next() {
    if (timed() ? done_ % 64 == 0 && elapsed_s() >= seconds_ : done_ >= rounds_) return false;
    ++done_;
    return true;
  }
  int64_t done() const { return done_; }

 private:
  double elapsed_s() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  int64_t rounds_, done_ = 0;
  double seconds_ = static_cast<double>(environment_number("TOKENMILL_FUZZ_SECONDS", 0));
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A function as libFuzzer calls it.
using FuzzTarget = int (*)(const uint8_t*, size_t);

/// Fails the test when the target throws, and keeps the input as a file.
inline void run_fuzz_target(FuzzTarget target, const std::string& name, const std::string& input) {
  try {
    target(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  } catch (const std::exception& error) {
    const std::string path = (std::filesystem::temp_directory_path() / ("tokenmill-fuzz-" + name)).string();
    io::write_file_atomically(path, input);
    FAIL_CHECK(name << ": " << error.what() << "; the input is in " << path);
  }
}

/// Runs the target on seeds changed by one to six calls of mutate(text, random); TOKENMILL_FUZZ_SEED chooses others.
template <typename Mutate>
void run_mutations(FuzzTarget target, const std::string& name, const std::vector<std::string>& seeds, int64_t rounds,
                   Mutate&& mutate) {
  MutationRandom random(environment_number("TOKENMILL_FUZZ_SEED", 1));
  MutationRounds round(rounds);
  while (round.next()) {
    std::string input = seeds[pick(random, seeds.size())];
    for (size_t changes = 1 + pick(random, 6); changes > 0; --changes) mutate(input, random);
    run_fuzz_target(target, name, input);
  }
  CHECK(round.done() >= 64);
  if (round.timed()) MESSAGE(name << ": " << round.done() << " inputs");
}

}  // namespace tokenmill::test
