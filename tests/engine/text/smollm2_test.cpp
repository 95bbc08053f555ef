#include <doctest/doctest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "engine/models/tokenizer_source.h"
#include "io/file.h"
#include "tests/engine/text/fixture.h"

using namespace tokenmill;
using namespace tokenmill::text;

namespace {

/// Processor time, so that other load on the machine does not count.
double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Path of the real model; nullptr after saying why there is none.
const char* smollm2_path() {
  const char* path = std::getenv("TOKENMILL_SMOLLM2");
  if (path == nullptr) MESSAGE("skipped: TOKENMILL_SMOLLM2 does not name SmolLM2-135M-Instruct.Q4_1.gguf");
  return path;
}

/// This repository's own C++ and Markdown: English and code.
std::string english_and_code() {
  std::string out;
  for (const char* folder : {"engine", "io", "kernels", "jobs", "parallel", "tests"}) {
    std::vector<std::string> paths;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::string(TM_TEST_DATA "/../../") + folder)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp" || extension == ".md") paths.push_back(entry.path());
    }
    for (const std::string& path : paths) out += io::read_file(path, 1 << 24);
  }
  return out;
}

void print_throughput(const std::string& name, const Tokenizer& tokenizer, const std::string& text) {
  double start = processor_seconds();
  const std::vector<int32_t> ids = tokenizer.encode(text);
  const double encode_seconds = processor_seconds() - start;
  start = processor_seconds();
  const std::string decoded = tokenizer.decode(ids);
  const double decode_seconds = processor_seconds() - start;
  CHECK(!decoded.empty());
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  MESSAGE(name, ": encode ", megabytes / encode_seconds, " MB/s, decode ", megabytes / decode_seconds, " MB/s (",
          megabytes, " MB, ", ids.size(), " ids, one core)");
}

}  // namespace

TEST_CASE("SmolLM2's vocabulary from its GGUF file gives the ids and text of its tokenizer") {
  const char* path = smollm2_path();
  if (path == nullptr) return;
  fixture::check_golden(load_tokenizer(path).tokenizer, "smollm2");
}

TEST_CASE("SmolLM2's tokenizer prints its speed") {
  const char* path = smollm2_path();
  if (path == nullptr) return;
  const double start = processor_seconds();
  const Tokenizer tokenizer = load_tokenizer(path).tokenizer;
  MESSAGE("loading ", tokenizer.vocab_size(), " tokens from GGUF: ", processor_seconds() - start, " s");
  print_throughput("English and code", tokenizer, english_and_code());
  std::string mixed;
  while (mixed.size() < (size_t{4} << 20)) {
    for (const std::string& line : fixture::corpus()) mixed += line;
  }
  print_throughput("mixed scripts", tokenizer, mixed);
  print_throughput("one word", tokenizer, std::string(1 << 20, 'a'));
}
