#include "app/chat.h"

#include <doctest/doctest.h>

#include <sstream>

#include "app/rows/codec.h"
#include "engine/text/tokenizer_loader.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/core/error.h"

using namespace tokenmill;

namespace {

const std::string kCases = std::string(TM_TEST_DATA) + "/cases/";

TokenizerSource tiny_source() {
  return {text::load_tokenizer_json(io::parse_json_file(kCases + "tiny_bpe.json"), {}, "tiny_bpe.json"),
          {},
          {{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
}

struct Fixture {
  TokenizerSource source = tiny_source();
  std::optional<text::ChatTemplate> chat = app::load_chat_template(source, kCases + "chat.jinja");
  rows::Codec codec{source.tokenizer,
                    app::make_chat_renderer(&*chat, "", source.special_tokens, "2024-07-30"),
                    {.vocab_size = 272, .max_model_len = 2048}};

  std::unique_ptr<rows::RowItem> encode(std::string_view record) const {
    auto item = codec.encode({.row = 0, .file = "chat.jsonl", .line = 1, .oversized_bytes = 0}, record);
    return std::unique_ptr<rows::RowItem>(dynamic_cast<rows::RowItem*>(item.release()));
  }
  std::vector<int32_t> ids(const std::string& text) const {
    return source.tokenizer.encode(text, {.add_special_tokens = false});
  }
};

}  // namespace

TEST_CASE("chats are rendered with the template, and what it refuses is the row's error") {
  const Fixture f;
  std::istringstream lines(io::read_file(kCases + "chat_records.jsonl", 1 << 20));
  std::string line;
  std::vector<std::unique_ptr<rows::RowItem>> items;
  while (std::getline(lines, line)) items.push_back(f.encode(line));
  REQUIRE(items.size() == 4);
  CHECK(items[0]->request.prompt_token_ids ==
        f.ids("<s><|turn|>system\nBe brief.<|end|>\n<|turn|>user\nHi  milo<|end|>\n<|turn|>assistant\n"));
  CHECK(std::vector<int32_t>(items[0]->request.prompt_token_ids.begin(),
                             items[0]->request.prompt_token_ids.begin() + 3) == std::vector<int32_t>{268, 270, 115});
  CHECK(items[1]->request.prompt_token_ids == f.ids("<s><|turn|>user\none<|end|>\n<|turn|>assistant\n"));
  REQUIRE(items[2]->error);
  CHECK(items[2]->error->message.find("unknown role: wizard") != std::string::npos);
  CHECK(items[2]->error->message.starts_with("chat.jsonl:1: "));
  const std::vector<int32_t> marker = {10, 97, 271, 98, 271, 10};
  const std::vector<int32_t>& fourth = items[3]->request.prompt_token_ids;
  CHECK(std::search(fourth.begin(), fourth.end(), marker.begin(), marker.end()) != fourth.end());
  CHECK(f.encode(R"({"prompt":"x"})")->request.prompt_token_ids == std::vector<int32_t>{268, 120});
}

TEST_CASE("messages that are none are errors of their rows") {
  const Fixture f;
  for (const char* messages :
       {"[]", "{}", "\"x\"", "[1]", R"([{"content":"x"}])", R"([{"role":1,"content":"x"}])",
        R"([{"role":"user","content":[{"type":"image_url"}]}])", R"([{"role":"user","content":3}])"}) {
    const auto item = f.encode(std::string(R"({"messages":)") + messages + "}");
    CHECK_MESSAGE(item->error.has_value(), messages);
    if (item->error) CHECK(item->error->message.find("messages") != std::string::npos);
  }
}

TEST_CASE("lists of text parts are joined for a template that takes text") {
  const Fixture f;
  CHECK(f.encode(R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]})")
            ->request.prompt_token_ids == f.ids("<s><|turn|>user\na\nb<|end|>\n<|turn|>assistant\n"));
}

TEST_CASE("a row may bring its own template, also where the model has none") {
  const Fixture f;
  const std::string chat = R"("messages":[{"role":"user","content":"hi"}])";
  const std::string own = R"({"chat_template":"{{ bos_token }}[{{ messages[0].content }}]{{ mood }}",)";
  CHECK(f.encode(own + chat + "}")->request.prompt_token_ids == f.ids("<s>[hi]"));
  CHECK(f.encode(own + chat + R"(,"chat_template_kwargs":{"mood":"!"}})")->request.prompt_token_ids ==
        f.ids("<s>[hi]!"));
  const auto broken = f.encode(R"({"chat_template":"{% frobnicate %}",)" + chat + "}");
  REQUIRE(broken->error);
  CHECK(broken->error->field == "chat_template");
  CHECK(f.encode(R"({"chat_template":"x","prompt":"y"})")->error->field == "chat_template");
  const rows::ChatRenderer without =
      app::make_chat_renderer(nullptr, "none here", f.source.special_tokens, "2024-07-30");
  CHECK(without({.messages = io::parse_json(R"([{"role":"user","content":"hi"}])", "m")}, "{{ bos_token }}") == "<s>");
  CHECK_THROWS_AS(without({.messages = io::parse_json(R"([{"role":"user","content":"hi"}])", "m")}, ""), rows::BadRow);
}

TEST_CASE("the job's template variables stand behind the row's own") {
  const Fixture f;
  rows::CodecOptions with{.vocab_size = 272, .max_model_len = 2048};
  with.defaults.chat_template_kwargs = io::parse_json(R"({"a":"1","b":"2"})", "k");
  const rows::Codec codec(f.source.tokenizer,
                          app::make_chat_renderer(&*f.chat, "", f.source.special_tokens, "2024-07-30"),
                          std::move(with));
  const auto ids = [&](const std::string& fields) {
    auto item = codec.encode(
        {.row = 0, .file = "chat.jsonl", .line = 1, .oversized_bytes = 0},
        R"({"messages":[{"role":"user","content":"hi"}],"chat_template":"{{ a }}{{ b }}{{ c }}")" + fields + "}");
    return dynamic_cast<const rows::RowItem&>(*item).request.prompt_token_ids;
  };
  CHECK(ids("") == f.ids("12"));
  CHECK(ids(R"(,"chat_template_kwargs":{"b":"x","c":"y"})") == f.ids("1xy"));
}

TEST_CASE("reasoning_effort reaches templates that read it and is an error for others") {
  const Fixture f;
  const std::string chat = R"("messages":[{"role":"user","content":"hi"}],"reasoning_effort":"high"})";
  CHECK(f.encode(R"({"chat_template":"{{ reasoning_effort }}",)" + chat)->request.prompt_token_ids == f.ids("high"));
  const auto item = f.encode("{" + chat);
  REQUIRE(item->error);
  CHECK(item->error->field == "reasoning_effort");
}

TEST_CASE("tools and documents reach templates that read them and are errors for others") {
  const Fixture f;
  const std::string chat = R"("messages":[{"role":"user","content":"hi"}])";
  for (const std::string field : {"tools", "documents"}) {
    CAPTURE(field);
    const std::string given = chat + ",\"" + field + R"(":[{"name":"x"}]})";
    const auto read = f.encode(R"({"chat_template":"{{ )" + field + R"([0].name }}",)" + given);
    CHECK(read->request.prompt_token_ids == f.ids("x"));
    // The word alone, in text, in a member's name or in a comment, reads nothing.
    for (const std::string own : {"", R"("chat_template":"FIELD{{ messages[0].FIELD }}{# FIELD #}",)"}) {
      std::string row = "{" + own + given;
      for (size_t at = 0; (at = row.find("FIELD")) != std::string::npos;) row.replace(at, 5, field);
      const auto item = f.encode(row);
      REQUIRE(item->error);
      CHECK(item->error->field == field);
      CHECK(item->error->message.find("does not read it; leave it out") != std::string::npos);
    }
    CHECK_FALSE(f.encode("{" + chat + ",\"" + field + "\":[]}")->error);
  }
}

TEST_CASE("a model without a template has no renderer; a template file that is missing or broken is refused") {
  const TokenizerSource source = tiny_source();
  CHECK_FALSE(app::load_chat_template(source, ""));
  CHECK_THROWS_AS(app::load_chat_template(source, kCases + "none.jinja"), Error);
  TokenizerSource broken = tiny_source();
  broken.chat_templates = {{"default", "{% frobnicate %}"}};
  CHECK_THROWS_WITH_AS(app::load_chat_template(broken, ""), doctest::Contains("frobnicate"), Error);
}
