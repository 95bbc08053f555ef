// Seeded mutations of valid and damaged inputs through every fuzz target of tests/io/fuzz. A fixed number of rounds by
// default; TOKENMILL_FUZZ_SECONDS=n runs each target for n seconds, TOKENMILL_FUZZ_SEED chooses other mutations.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "io/file.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/hdf5_builder.h"
#include "tests/io/packing.h"
#include "tests/support/mutations.h"

using namespace tokenmill;

extern "C" {  // each file of tests/io/fuzz is compiled with its own name for LLVMFuzzerTestOneInput
int fuzz_json(const uint8_t* data, size_t size);
int fuzz_jsonl(const uint8_t* data, size_t size);
int fuzz_packed(const uint8_t* data, size_t size);
int fuzz_safetensors(const uint8_t* data, size_t size);
int fuzz_gguf(const uint8_t* data, size_t size);
int fuzz_hdf5(const uint8_t* data, size_t size);
}

namespace {

using test::MutationRandom;
using test::pick;

/// One random change: cut, flip, overwrite with telling bytes or numbers, insert, delete, repeat, splice another seed.
void mutate(std::string& text, const std::vector<std::string>& seeds, MutationRandom& random) {
  static const std::vector<std::string> pieces = {"\"",
                                                  "\\",
                                                  "{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  ",",
                                                  ":",
                                                  "\r",
                                                  "\n",
                                                  "\r\n",
                                                  std::string(1, '\0'),
                                                  "\xEF\xBB\xBF",
                                                  "\xFF",
                                                  "\xED\xA0\x80",
                                                  "\\u0000",
                                                  "\\ud800",
                                                  "\\ude42",
                                                  "-0",
                                                  "1e999",
                                                  "18446744073709551616",
                                                  "null",
                                                  "\"w\":",
                                                  "[0,0]",
                                                  "\"F32\"",
                                                  "GGUF",
                                                  "\x1f\x8b",
                                                  "\x28\xb5\x2f\xfd"};
  static const uint64_t numbers[] = {0,
                                     1,
                                     2,
                                     8,
                                     31,
                                     32,
                                     33,
                                     255,
                                     65535,
                                     0x7fffffff,
                                     0xffffffff,
                                     uint64_t{1} << 40,
                                     uint64_t{1} << 62,
                                     uint64_t{1} << 63,
                                     ~uint64_t{0},
                                     ~uint64_t{0} - 31};
  if (text.empty()) text = "x";
  const size_t at = pick(random, text.size());
  switch (pick(random, 9)) {
    case 0:
      text.resize(at);
      break;
    case 1:
      text[at] = static_cast<char>(text[at] ^ (1 << pick(random, 8)));
      break;
    case 2:
      text[at] = static_cast<char>(random());
      break;
    case 3:
      text.insert(at, pieces[pick(random, pieces.size())]);
      break;
    case 4:
      text.erase(at, 1 + pick(random, 8));
      break;
    case 5:
      text.insert(at, text.substr(at, 1 + pick(random, 64)));
      break;
    case 6: {
      const uint64_t number = numbers[pick(random, std::size(numbers))];
      const size_t width = pick(random, 2) ? 8 : 4;
      if (at + width <= text.size()) std::memcpy(text.data() + at, &number, width);
      break;
    }
    case 7: {
      const std::string& other = seeds[pick(random, seeds.size())];
      if (!other.empty()) text = text.substr(0, at) + other.substr(pick(random, other.size()));
      break;
    }
    default: {  // a digit, where there is one
      const size_t digit = text.find_first_of("0123456789", at);
      if (digit != std::string::npos) text[digit] = static_cast<char>('0' + pick(random, 10));
    }
  }
  if (text.size() > (1 << 16)) text.resize(1 << 16);
}

void fuzz(test::FuzzTarget target, const char* name, const std::vector<std::string>& seeds, int rounds) {
  for (const std::string& seed : seeds) test::run_fuzz_target(target, name, seed);
  test::run_mutations(target, name, seeds, rounds,
                      [&](std::string& text, MutationRandom& random) { mutate(text, seeds, random); });
}

std::vector<std::string> case_files(const std::string& prefix, const std::string& suffix) {
  std::vector<std::string> contents;
  for (const auto& entry : std::filesystem::directory_iterator(TM_TEST_DATA "/cases")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix))
      contents.push_back(io::read_file(entry.path().string(), 1 << 20));
  }
  std::sort(contents.begin(), contents.end());
  REQUIRE_FALSE(contents.empty());
  return contents;
}

}  // namespace

TEST_CASE("mutated JSON is a value or an input error") {
  std::vector<std::string> seeds = {
      "[1,-0,2.50,1e5,true,false,null,\"\\ud83d\\ude42\\u0000\\n\",{\"a\":{\"a\":[[]],\"a\":{}}}]",
      std::string(80, '[') + std::string(80, ']')};
  for (const std::string& file : case_files("", ".jsonl"))
    for (size_t begin = 0; begin < file.size();) {
      const size_t end = std::min(file.find('\n', begin), file.size());
      seeds.push_back(file.substr(begin, end - begin));
      begin = end + 1;
    }
  fuzz(fuzz_json, "json", seeds, 5000);
}

TEST_CASE("mutated JSONL gives the same records however it is read") {
  std::vector<std::string> seeds;
  for (const std::string& file : case_files("", ".jsonl")) seeds.push_back(std::string("\x40\x05") + file);
  seeds.push_back(std::string("\x03\x01\xEF\xBB\xBF \r\n\r\n{\"long\":1}\r\n  \r\n\n12\r"));
  fuzz(fuzz_jsonl, "jsonl", seeds, 3000);
}

TEST_CASE("mutated gzip and zstd files give the same text or error however they are read") {
  std::vector<std::string> seeds = case_files("", ".gz");
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * 7919 % 1000) + ",";
  seeds.push_back(test::gzip("") + test::gzip(text) + test::gzip("x"));
  seeds.push_back(test::zstd(text));
  seeds.push_back(test::zstd("") + test::zstd("a") + std::string("\x5a\x2a\x4d\x18\x03\x00\x00\x00xyz", 11) +
                  test::zstd(text.substr(0, 500)));
  fuzz(fuzz_packed, "packed", seeds, 1500);
}

TEST_CASE("mutated safetensors files are read within bounds or refused") {
  std::vector<std::string> seeds = case_files("st_", ".bin");
  seeds.push_back(
      io::read_file(TM_TEST_DATA "/models/tiny-qwen2/model-00002-of-00002.safetensors", 1 << 20).substr(0, 20000));
  fuzz(fuzz_safetensors, "safetensors", seeds, 3000);
}

TEST_CASE("mutated GGUF files are read within bounds or refused") {
  test::GgufBuilder small;
  small.header(2, 2)
      .key("general.alignment", io::GgufType::kUint32, uint32_t{8})
      .array("a", io::GgufType::kString, 2)
      .text("x")
      .text("y");
  small.tensor("w", {32, 2}, 8, 0).tensor("v", {3}, 0, 72).data(84, 8);
  fuzz(fuzz_gguf, "gguf", {small.bytes(), io::read_file(TM_TEST_DATA "/gguf/types.gguf", 1 << 20)}, 3000);
}

TEST_CASE("mutated HDF5 files give the same records however they are read or are refused") {
  std::vector<std::string> seeds;
  for (const bool latest_format : {false, true}) {
    test::Hdf5Builder file(latest_format);
    file.texts("ids", {"a", "b", "c", "d"}).texts("texts", {"one", "two words", "", "three"});
    file.chunk(2, true).fixed("fixed", {"x", "yy", "zzz", ""}, 8);
    file.group("tokens").numbers("tokens/values", {1, 2, 3, 4, 5, 6, 7}, H5T_STD_I32LE);
    file.numbers("tokens/offsets", {0, 2, 2, 5, 7});
    seeds.push_back(file.bytes());
  }
  test::run_mutations(fuzz_hdf5, "hdf5", seeds, 400, [](std::string& bytes, MutationRandom& random) {
    size_t at = pick(random, bytes.size());
    for (int tries = 0; tries < 20 && bytes[at] == 0; ++tries) at = pick(random, bytes.size());  // most are padding
    switch (pick(random, 8)) {
      case 0:
        bytes.resize(std::max<size_t>(64, at));
        break;
      case 1:
      case 2:
        bytes[at] = static_cast<char>(random());
        break;
      case 3:
        bytes[at] = pick(random, 2) ? '\xff' : '\0';
        break;
      default:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << pick(random, 8)));
    }
  });
}
