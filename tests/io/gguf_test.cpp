#include "io/gguf.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "io/file.h"
#include "kernels/core/error.h"
#include "tests/io/gguf_builder.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using io::GgufType;
using test::GgufBuilder;

namespace {

std::string error_of(const std::string& bytes) {
  const test::TempDir dir;
  try {
    io::read_gguf(dir.write("m.gguf", bytes));
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.starts_with(dir / "m.gguf"));
    return text.substr(dir.path().size() + 1);
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr uint32_t kF32 = 0, kQ8_0 = 8;

}  // namespace

TEST_CASE("a file made by gguf's own writer reads back: every value type and every format") {
  const std::string path = TM_TEST_DATA "/gguf/types.gguf";
  const io::GgufFile file = io::read_gguf(path);
  const io::GgufMetadata& m = file.metadata;
  CHECK(file.version == 3);
  CHECK(file.alignment == 32);
  CHECK(m.string("general.architecture") == "llama");
  CHECK(m.unsigned_integer("t.uint8") == 200);
  CHECK(m.integer("t.int8") == -100);
  CHECK(m.unsigned_integer("t.uint16") == 60000);
  CHECK(m.integer("t.int16") == -30000);
  CHECK(m.unsigned_integer("t.uint32") == 4000000000u);
  CHECK(m.integer("t.int32") == -2000000000);
  CHECK(m.unsigned_integer("t.uint64") == std::numeric_limits<uint64_t>::max());
  CHECK(m.integer("t.int64") == std::numeric_limits<int64_t>::min());
  CHECK(m.number("t.float32") == 0.15625);
  CHECK(m.number("t.float64") == 0.1);
  CHECK(m.number("t.int8") == -100.0);
  CHECK(m.boolean("t.bool"));
  CHECK(m.string("t.string") ==
        "gr\xC3\xBC\xC3\x9F"
        "e\n");
  CHECK(m.strings("t.strings") == std::vector<std::string>{"a", "", "\xC4\xA0the", "\xF0\x9F\x99\x82"});
  CHECK(m.integers("t.int32s") == std::vector<int64_t>{1, -2, 3});
  CHECK(m.numbers("t.int32s") == std::vector<double>{1, -2, 3});
  CHECK(m.numbers("t.float32s") == std::vector<double>{0.5, -1.5});
  CHECK(m.booleans("t.bools") == std::vector<bool>{true, false, true});
  CHECK(m.entries().size() == 17);

  const std::vector<std::string> formats = {"F32",  "F16",  "BF16", "Q4_0", "Q4_1",   "Q5_0", "Q5_1",
                                            "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "I32"};
  CHECK(file.tensors.tensors().size() == formats.size() + 2);
  const io::File bytes = io::File::open_read(path);
  for (size_t i = 0; i < formats.size(); ++i) {
    CAPTURE(formats[i]);
    const io::TensorInfo& tensor = file.tensors.at("w." + formats[i]);
    const int64_t rows = 2 + static_cast<int64_t>(i % 3);
    CHECK(tensor.type_name == formats[i]);
    CHECK(tensor.shape == std::vector<int64_t>{rows, i < 3 || formats[i] == "I32" ? 5 : 256});
    if (i < 11) {
      CHECK(weight_format_info(file.tensors.format_of(tensor)).name == formats[i]);
      CHECK(tensor.bytes == rows * weight_row_bytes(file.tensors.format_of(tensor), tensor.shape.back()));
    } else {
      CHECK_THROWS_WITH_AS(file.tensors.format_of(tensor),
                           doctest::Contains(("tensor w." + formats[i] + " has type " + formats[i]).c_str()), Error);
    }
    std::string data(static_cast<size_t>(tensor.bytes), '\0');
    bytes.read_exactly_at(tensor.offset, std::as_writable_bytes(std::span(data)));
    CHECK(data == std::string(data.size(), static_cast<char>(i + 1)));
  }
  CHECK(file.tensors.at("w.vector").shape == std::vector<int64_t>{3});
  CHECK(file.tensors.at("w.cube").shape == std::vector<int64_t>{2, 3, 4});
  CHECK(io::is_gguf(path));
}

TEST_CASE("values are described for people") {
  const io::GgufFile file = io::read_gguf(TM_TEST_DATA "/gguf/types.gguf");
  const auto text = [&](const char* key) { return file.metadata.find(key)->describe(); };
  CHECK(text("t.uint64") == "uint64 18446744073709551615");
  CHECK(text("t.int8") == "int8 -100");
  CHECK(text("t.float32") == "float32 0.15625");
  CHECK(text("t.float64") == "float64 0.1");
  CHECK(text("t.bool") == "bool true");
  CHECK(text("t.string") ==
        "string gr\xC3\xBC\xC3\x9F"
        "e\\x0a");
  CHECK(text("t.strings") == "array of 4 strings");
}

TEST_CASE("a wrong type or a missing key is named, with what is allowed") {
  const std::string path = TM_TEST_DATA "/gguf/types.gguf";
  const io::GgufFile file = io::read_gguf(path);
  const io::GgufMetadata& m = file.metadata;
  const auto expect = [&](auto&& call, const std::string& text) {
    CHECK_THROWS_WITH_AS(call(), (path + ": " + text).c_str(), Error);
  };
  expect([&] { m.unsigned_integer("t.string"); }, "key t.string is string, must be an unsigned integer");
  expect([&] { m.unsigned_integer("t.int32"); }, "key t.int32 is int32 -2000000000, must be an unsigned integer");
  expect([&] { m.unsigned_integer("t.bool"); }, "key t.bool is bool true, must be an unsigned integer");
  expect([&] { m.integer("t.uint64"); }, "key t.uint64 is uint64 18446744073709551615, must be an integer below 2^63");
  expect([&] { m.number("t.strings"); }, "key t.strings is array of 4 strings, must be a number");
  expect([&] { m.string("t.uint8"); }, "key t.uint8 is uint8 200, must be a string");
  expect([&] { m.strings("t.int32s"); }, "key t.int32s is array of 3 int32s, must be an array of strings");
  expect([&] { m.strings("t.string"); }, "key t.string is string, must be an array of strings");
  expect([&] { m.integers("t.float32s"); },
         "key t.float32s is array of 2 float32s, must be an array of integers below 2^63");
  expect([&] { m.numbers("t.bools"); }, "key t.bools is array of 3 bools, must be an array of numbers");
  expect([&] { m.booleans("t.int32s"); }, "key t.int32s is array of 3 int32s, must be an array of bools");
  expect([&] { m.string("absent"); }, "key absent is missing");
}

TEST_CASE("version 2 and an own alignment are read; empty files of either kind too") {
  const test::TempDir dir;
  GgufBuilder b;
  b.header(2, 2, 2).key("general.alignment", GgufType::kUint32, uint32_t{64}).array("empty", GgufType::kString, 0);
  b.tensor("a", {3}, kF32, 0).tensor("b", {32, 2}, kQ8_0, 64).data(64 + 68, 64);
  const io::GgufFile file = io::read_gguf(dir.write("m.gguf", b.bytes()));
  CHECK(file.version == 2);
  CHECK(file.alignment == 64);
  CHECK(file.metadata.strings("empty").empty());
  CHECK(file.tensors.at("b").offset % 64 == 0);
  CHECK(file.tensors.at("b").bytes == 68);
  CHECK(error_of(GgufBuilder().header(0, 0).bytes()) == "no error");
}

TEST_CASE("what is no GGUF of a version that can be read is refused by name") {
  CHECK(contains(error_of("GGUF"), "is no GGUF file: it has 4 bytes"));
  CHECK(contains(error_of(GgufBuilder().header(0, 0, 3, "GGML").bytes()), "starts with \"GGML\""));
  CHECK(contains(error_of(GgufBuilder().header(0, 0, 1).bytes()), "is GGUF version 1; versions 2 and 3 can be read"));
  CHECK(contains(error_of(GgufBuilder().header(0, 0, 4).bytes()), "is GGUF version 4"));
  CHECK(contains(error_of(GgufBuilder().header(0, 0, 0x03000000).bytes()), "big-endian"));
  CHECK(contains(error_of(GgufBuilder().header(0, 1).key("split.count", GgufType::kUint16, uint16_t{3}).bytes()),
                 "is one of 3 parts of a split model"));
  const test::TempDir dir;
  CHECK_FALSE(io::is_gguf(dir.write("x", "GGU")));
  CHECK_FALSE(io::is_gguf(dir.path()));
  CHECK_FALSE(io::is_gguf(dir / "absent"));
}

TEST_CASE("huge counts and lengths are refused before memory is taken for them") {
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  for (const uint64_t count : {kHuge, uint64_t{1} << 63, uint64_t{1} << 40, uint64_t{1000}}) {
    CAPTURE(count);
    CHECK(contains(error_of(GgufBuilder().header(count, 0).data(64).bytes()), "tensor count is "));
    CHECK(contains(error_of(GgufBuilder().header(0, count).data(64).bytes()), "key count is "));
    CHECK(contains(error_of(GgufBuilder().header(0, 1).raw(count).data(64).bytes()), "key 0: a string is given as "));
    CHECK(contains(error_of(GgufBuilder().header(0, 1).key("k", GgufType::kString, count).data(64).bytes()),
                   "key k: a string is given as "));
    for (const GgufType type : {GgufType::kString, GgufType::kUint8, GgufType::kFloat64})
      CHECK(contains(error_of(GgufBuilder().header(0, 1).array("k", type, count).data(64).bytes()),
                     "key k: the array is given as "));
  }
}

TEST_CASE("damaged metadata is refused with the key's name") {
  CHECK(contains(error_of(GgufBuilder().header(0, 1).key("k", GgufType{13}).data(64).bytes()), "key k has type 13"));
  CHECK(contains(error_of(GgufBuilder().header(0, 1).array("k", GgufType{99}, 1).data(64).bytes()),
                 "key k (array) has type 99"));
  CHECK(contains(error_of(GgufBuilder().header(0, 1).array("k", GgufType::kArray, 1).data(64).bytes()),
                 "key k is an array of arrays"));
  CHECK(contains(error_of(GgufBuilder().header(0, 1).key("k", GgufType::kBool, uint8_t{2}).data(64).bytes()),
                 "key k: a bool is neither"));
  CHECK(contains(error_of(GgufBuilder().header(0, 1).key("k\xFF", GgufType::kBool, uint8_t{1}).data(64).bytes()),
                 "not valid UTF-8 at its byte 1: \"k\\xff\""));
  CHECK(contains(error_of(GgufBuilder().header(0, 1).key("k", GgufType::kString).text("\xED\xA0\x80").data(64).bytes()),
                 "key k: a string is not valid UTF-8 at its byte 0"));
  CHECK(contains(error_of(GgufBuilder().header(0, 1).key("", GgufType::kBool, uint8_t{1}).data(64).bytes()),
                 "key 0 has an empty name"));
  CHECK(contains(error_of(GgufBuilder()
                              .header(0, 2)
                              .key("k", GgufType::kBool, uint8_t{1})
                              .key("k", GgufType::kUint8, uint8_t{1})
                              .bytes()),
                 "key k occurs twice"));
  for (const uint32_t alignment : {0u, 24u, 3u, 1u << 21})
    CHECK(contains(error_of(GgufBuilder().header(0, 1).key("general.alignment", GgufType::kUint32, alignment).bytes()),
                   "must be a power of two"));
  CHECK(contains(error_of(GgufBuilder().header(0, 1).key("general.alignment", GgufType::kString).text("32").bytes()),
                 "key general.alignment is string"));
}

TEST_CASE("damaged tensor tables are refused with the tensor's name") {
  const auto one = [](std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset, size_t data = 4096) {
    return error_of(GgufBuilder().header(1, 0).tensor("w", dims, type, offset).data(data).bytes());
  };
  CHECK(one({4, 2}, kF32, 0) == "no error");
  CHECK(contains(one({}, kF32, 0), "tensor w has 0 dimensions"));
  CHECK(contains(one({1, 1, 1, 1, 1}, kF32, 0), "tensor w has 5 dimensions"));
  CHECK(contains(error_of(GgufBuilder().header(1, 0).text("w").raw(uint32_t{0xFFFFFFFF}).data(64).bytes()),
                 "tensor w has 4294967295 dimensions"));
  CHECK(contains(one({4, 0}, kF32, 0), "tensor w: dimension 1 is 0"));
  CHECK(contains(one({4, ~uint64_t{0}}, kF32, 0), "tensor w: dimension 1 is 18446744073709551615"));
  CHECK(contains(one({uint64_t{1} << 32, uint64_t{1} << 32}, kF32, 0),
                 "tensor w: shape [4294967296, 4294967296] of F32 is too large"));
  CHECK(contains(one({uint64_t{1} << 62}, kF32, 0), "is too large"));
  CHECK(contains(one({33, 2}, kQ8_0, 0), "tensor w: its rows of 33 elements are no multiple of Q8_0's blocks of 32"));
  CHECK(contains(one({4}, 200, 0), "tensor w has type number 200"));
  CHECK(contains(one({4}, 31, 0), "tensor w has type number 31"));
  CHECK(contains(one({4}, kF32, 16), "tensor w: offset 16 is no multiple of the alignment 32"));
  CHECK(contains(one({4}, kF32, ~uint64_t{0} - 31), "lies behind the end of the file"));
  CHECK(contains(one({4}, kF32, 32), "tensor w is at byte 32 of the data, must be at 0: it leaves a hole"));
  CHECK(contains(one({4}, kF32, 0, 15), "tensor w takes 16 bytes from offset 64, the file ends at 79: it is cut off"));
  CHECK(contains(one({4}, kF32, 0, 0), "the file ends at 64: it is cut off"));
  CHECK(contains(error_of(GgufBuilder().header(1, 0).tensor("", {4}, kF32, 0).data(64).bytes()),
                 "tensor 0 has an empty name"));

  const auto two = [](std::string_view name, uint64_t first, uint64_t second) {
    return error_of(
        GgufBuilder().header(2, 0).tensor("a", {16}, kF32, first).tensor(name, {16}, kF32, second).data(4096).bytes());
  };
  CHECK(two("b", 0, 64) == "no error");
  CHECK(two("b", 64, 0) == "no error");
  CHECK(contains(two("a", 0, 64), "tensor a occurs twice"));
  CHECK(contains(two("b", 0, 32), "tensor b is at byte 32 of the data, must be at 64: it overlaps another tensor"));
  CHECK(contains(two("b", 0, 0), "it overlaps another tensor"));
  CHECK(contains(two("b", 0, 96), "tensor b is at byte 96 of the data, must be at 64: it leaves a hole"));
}

TEST_CASE("a file cut anywhere is refused") {
  const std::string whole = io::read_file(TM_TEST_DATA "/gguf/types.gguf", 1 << 20);
  const size_t end_of_data = 6336 + 96;  // the last tensor's last byte; padding may be missing
  for (size_t size = 0; size < end_of_data; size += size < 1300 ? 3 : 97) {
    CAPTURE(size);
    CHECK(error_of(whole.substr(0, size)) != "no error");
  }
  CHECK(error_of(whole.substr(0, end_of_data)) == "no error");
}
