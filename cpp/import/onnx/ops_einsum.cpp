// Einsum, as products of matrices, operand by operand.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "import/onnx/call.hpp"

namespace cuvil::onnx {

namespace {

// Axes that an ellipsis stands for get labels beyond the letters, counted from the last.
using Label = int;
using Labels = std::vector<Label>;

struct Term {
  Value* value;
  Labels labels;  // distinct
};

class Einsum {
 public:
  explicit Einsum(Call& c) : c_(c), b_(c.b) {}

  Value* run() {
    parse();
    for (size_t i = 0; i < terms_.size(); ++i) take_diagonals(terms_[i]);
    Term result = terms_[0];
    for (size_t i = 1; i < terms_.size(); ++i) {
      result = product(sum_alone(result, i), sum_alone(terms_[i], i, &result), labels_after(i));
    }
    return arrange(result, output_);
  }

 private:
  Labels read(const std::string& text, int64_t rank) {
    const auto letters = std::count_if(text.begin(), text.end(), [](unsigned char ch) { return std::isalpha(ch); });
    Labels labels;
    for (size_t i = 0; i < text.size(); ++i) {
      if (std::isalpha(static_cast<unsigned char>(text[i]))) {
        labels.push_back(text[i]);
      } else if (text.compare(i, 3, "...") == 0) {
        const int64_t hidden = rank >= 0 ? rank - letters : ellipsis_;
        c_.require(hidden >= 0, "an operand has too few axes");
        ellipsis_ = std::max(ellipsis_, hidden);
        for (int64_t k = hidden; k-- > 0;) labels.push_back(static_cast<Label>(1000 + k));
        i += 2;
      } else {
        c_.fail("the equation has the unexpected character '" + std::string(1, text[i]) + "'");
      }
    }
    c_.require(rank < 0 || static_cast<int64_t>(labels.size()) == rank, "an operand does not have the equation's rank");
    return labels;
  }

  void parse() {
    std::string equation = c_.text("equation", "");
    equation.erase(std::remove_if(equation.begin(), equation.end(), [](unsigned char ch) { return std::isspace(ch); }),
                   equation.end());
    const size_t arrow = equation.find("->");
    std::string left = equation.substr(0, arrow);
    std::vector<std::string> parts(1);
    for (char ch : left) {
      if (ch == ',') {
        parts.emplace_back();
      } else {
        parts.back() += ch;
      }
    }
    c_.require(parts.size() == c_.input_count(), "the equation has another number of operands");
    std::map<Label, int> count;
    for (size_t i = 0; i < parts.size(); ++i) {
      Value* v = c_.input(i);
      terms_.push_back({v, read(parts[i], v->type.rank())});
      for (Label l : terms_.back().labels) ++count[l];
    }
    if (arrow != std::string::npos) {
      output_ = read(equation.substr(arrow + 2), -1);
    } else {
      for (int64_t k = ellipsis_; k-- > 0;) output_.push_back(static_cast<Label>(1000 + k));
      for (const auto& [label, n] : count) {
        if (label < 1000 && n == 1) output_.push_back(label);
      }
    }
    for (Label l : output_) c_.require(count.count(l) > 0, "the result has an index that no operand has");
  }

  // Axes with one label become one.
  void take_diagonals(Term& term) {
    for (size_t i = 0; i < term.labels.size(); ++i) {
      for (size_t k = i + 1; k < term.labels.size();) {
        if (term.labels[k] != term.labels[i]) {
          ++k;
          continue;
        }
        const Shape& shape = term.value->type.shape;
        Shape along(shape.size(), Dim(1));
        along[i] = shape[i];
        Shape wanted = shape;
        wanted[k] = 1;
        Value* index = b_.broadcast(b_.iota(along, static_cast<int>(i), DType::i64), wanted);
        term.value = b_.squeeze(b_.gather_elements(term.value, index, static_cast<int>(k)), {static_cast<int64_t>(k)});
        term.labels.erase(term.labels.begin() + static_cast<long>(k));
      }
    }
  }

  // Labels that the result or a later operand needs once operand i is multiplied in.
  std::set<Label> labels_after(size_t i) const {
    std::set<Label> needed(output_.begin(), output_.end());
    for (size_t k = i + 1; k < terms_.size(); ++k) needed.insert(terms_[k].labels.begin(), terms_[k].labels.end());
    return needed;
  }

  // Sums the axes that nobody else needs.
  Term sum_alone(const Term& term, size_t i, const Term* other = nullptr) {
    std::set<Label> needed = labels_after(i);
    const Labels& also = other ? other->labels : terms_[i].labels;
    needed.insert(also.begin(), also.end());
    std::vector<int64_t> axes;
    Labels kept;
    for (size_t k = 0; k < term.labels.size(); ++k) {
      if (needed.count(term.labels[k])) {
        kept.push_back(term.labels[k]);
      } else {
        axes.push_back(static_cast<int64_t>(k));
      }
    }
    return axes.empty() ? term : Term{b_.reduce(ReduceFn::Sum, term.value, axes, false), kept};
  }

  static bool has(const Labels& labels, Label l) { return std::find(labels.begin(), labels.end(), l) != labels.end(); }

  Term product(const Term& x, const Term& y, const std::set<Label>& needed) {
    Labels batch, left, right, inner;
    for (Label l : x.labels) (!has(y.labels, l) ? left : needed.count(l) ? batch : inner).push_back(l);
    for (Label l : y.labels) {
      if (!has(x.labels, l)) right.push_back(l);
    }
    auto joined = [](Labels a, const Labels& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
    auto grouped = [&](const Term& t, const Labels& rows, const Labels& columns) {
      Value* v = arrange(t, joined(joined(batch, rows), columns));
      Shape shape(v->type.shape.begin(), v->type.shape.begin() + static_cast<long>(batch.size()));
      shape.push_back(product_of(v, batch.size(), rows.size()));
      shape.push_back(product_of(v, batch.size() + rows.size(), columns.size()));
      return b_.reshape(v, shape);
    };
    Value* a = grouped(x, left, inner);
    Value* c = grouped(y, inner, right);
    Value* v = b_.matmul(a, c);
    const Labels labels = joined(joined(batch, left), right);
    Shape shape;
    for (size_t i = 0; i < batch.size(); ++i) shape.push_back(v->type.shape[i]);
    for (Label l : left) shape.push_back(size_of(x, l));
    for (Label l : right) shape.push_back(size_of(y, l));
    return {b_.reshape(v, shape), labels};
  }

  static Dim product_of(const Value* v, size_t first, size_t count) {
    Dim p = 1;
    for (size_t i = 0; i < count; ++i) p = p * v->type.shape[first + i];
    return p;
  }

  static Dim size_of(const Term& t, Label l) {
    return t.value->type.shape[static_cast<size_t>(std::find(t.labels.begin(), t.labels.end(), l) - t.labels.begin())];
  }

  // The term's axes in this order; those that are not wanted are summed, those it lacks have size 1.
  Value* arrange(Term term, const Labels& wanted) {
    std::vector<int64_t> axes;
    Labels kept;
    for (size_t k = 0; k < term.labels.size(); ++k) {
      if (has(wanted, term.labels[k])) {
        kept.push_back(term.labels[k]);
      } else {
        axes.push_back(static_cast<int64_t>(k));
      }
    }
    if (!axes.empty()) term = {b_.reduce(ReduceFn::Sum, term.value, axes, false), kept};
    std::vector<int64_t> perm, added;
    for (size_t i = 0; i < wanted.size(); ++i) {
      auto it = std::find(term.labels.begin(), term.labels.end(), wanted[i]);
      if (it == term.labels.end()) {
        added.push_back(static_cast<int64_t>(i));
      } else {
        perm.push_back(it - term.labels.begin());
      }
    }
    return b_.unsqueeze(b_.transpose(term.value, perm), added);
  }

  Call& c_;
  Builder& b_;
  std::vector<Term> terms_;
  Labels output_;
  int64_t ellipsis_ = 0;
};

void einsum(Call& c) {
  c.set(Einsum(c).run());
}

}  // namespace

std::vector<Row> einsum_rows() {
  return {{"Einsum", einsum}};
}

}  // namespace cuvil::onnx
