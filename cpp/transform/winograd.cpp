#include "transform/winograd.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "support/error.hpp"
#include "transform/pack.hpp"

namespace cuvil {

namespace {

using Values = std::vector<Value*>;

// Bᵀd of one column of a tile.
Values transform_input(Builder& b, const Values& d) {
  if (d.size() == 4) return {b.sub(d[0], d[2]), b.add(d[1], d[2]), b.sub(d[2], d[1]), b.sub(d[1], d[3])};
  auto times = [&](Value* v, double c) { return b.binary(Fn::Mul, v, c); };
  Value* even = b.sub(d[4], times(d[2], 4));
  Value* odd = b.sub(d[3], times(d[1], 4));
  Value* even2 = b.sub(d[4], d[2]);
  Value* odd2 = times(b.sub(d[3], d[1]), 2);
  return {b.add(times(d[0], 4), b.sub(d[4], times(d[2], 5))),
          b.add(even, odd),
          b.sub(even, odd),
          b.add(even2, odd2),
          b.sub(even2, odd2),
          b.add(times(d[1], 4), b.sub(d[5], times(d[3], 5)))};
}

// Aᵀm of one column of products.
Values transform_output(Builder& b, const Values& m) {
  Value* sum = b.add(m[1], m[2]);
  Value* difference = b.sub(m[1], m[2]);
  if (m.size() == 4) return {b.add(m[0], sum), b.sub(difference, m[3])};
  auto times = [&](Value* v, double c) { return b.binary(Fn::Mul, v, c); };
  Value* sum2 = b.add(m[3], m[4]);
  Value* difference2 = b.sub(m[3], m[4]);
  return {b.add(b.add(m[0], sum), sum2), b.add(difference, times(difference2, 2)), b.add(sum, times(sum2, 4)),
          b.add(b.add(difference, times(difference2, 8)), m[5])};
}

// G, (m+2) × 3.
std::vector<std::array<double, 3>> filter_matrix(int64_t m) {
  if (m == 2) return {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  return {{1.0 / 4, 0, 0},
          {-1.0 / 6, -1.0 / 6, -1.0 / 6},
          {-1.0 / 6, 1.0 / 6, -1.0 / 6},
          {1.0 / 24, 1.0 / 12, 1.0 / 6},
          {1.0 / 24, -1.0 / 12, 1.0 / 6},
          {0, 0, 1}};
}

// G g Gᵀ for every pair of channels, in double, as [(m+2)²][oc/nr][ic][nr] with oc padded by zeros.
Tensor transform_filter(const Tensor& filter, int64_t m, int64_t nr, int64_t padded) {
  constexpr size_t kMost = 64;
  using Columns = std::array<double, kMost>;
  const auto g = filter_matrix(m);
  const int64_t oc = filter.shape()[0], ic = filter.shape()[1];
  const size_t t = g.size(), width = static_cast<size_t>(nr);
  CUVIL_CHECK(width <= kMost, "a panel is wider than the filter transform takes");
  Tensor out = Tensor::uninitialized(DType::f32, {static_cast<int64_t>(t * t), padded / nr, ic, nr});
  auto* to = out.mutable_as<float>();
  const auto* from = filter.as<float>();
  std::array<Columns, 9> w{};
  std::array<Columns, 3> rows{};
  for (int64_t panel = 0; panel < padded / nr; ++panel) {
    const int64_t live = std::min(nr, oc - panel * nr);
    if (live < nr) w = {};
    for (int64_t i = 0; i < ic; ++i) {
      for (int64_t o = 0; o < live; ++o) {
        const float* taps = from + ((panel * nr + o) * ic + i) * 9;
        for (size_t k = 0; k < 9; ++k) w[k][static_cast<size_t>(o)] = taps[k];
      }
      for (size_t a = 0; a < t; ++a) {
        for (size_t x = 0; x < 3; ++x) {
          for (size_t o = 0; o < width; ++o)
            rows[x][o] = g[a][0] * w[x][o] + g[a][1] * w[3 + x][o] + g[a][2] * w[6 + x][o];
        }
        for (size_t c = 0; c < t; ++c) {
          float* column = to + ((static_cast<int64_t>(a * t + c) * (padded / nr) + panel) * ic + i) * nr;
          for (size_t o = 0; o < width; ++o)
            column[o] = static_cast<float>(g[c][0] * rows[0][o] + g[c][1] * rows[1][o] + g[c][2] * rows[2][o]);
        }
      }
    }
  }
  return out;
}

// Every m-th row (or column) of x from each of the first `count` offsets, `tiles` of them.
Values strided(Builder& b, Value* x, int axis, int64_t count, int64_t m, const Dim& tiles) {
  Values list;
  for (int64_t i = 0; i < count; ++i) list.push_back(b.slice_axis(x, axis, i, (tiles - 1) * m + i + 1, m));
  return list;
}

// The values one after another along a new first axis.
Value* stack(Builder& b, Values values) {
  for (Value*& v : values) v = b.unsqueeze(v, {0});
  return b.concat(values, 0);
}

Values unstack(Builder& b, Value* x, int axis, int64_t count) {
  Values list;
  for (int64_t i = 0; i < count; ++i) list.push_back(b.squeeze(b.slice_axis(x, axis, i, i + 1), {axis}));
  return list;
}

}  // namespace

Winograd choose_winograd(int64_t in_channels, int64_t out_channels, int64_t rows, int64_t columns, int64_t lanes,
                         bool strict) {
  if (strict) return {};
  // In units of one vector multiply-add: products, or the time their weights take from memory if that is longer, and
  // the transforms around them.
  constexpr double stream = 22, transform = 12;
  const auto vectors_in = static_cast<double>((in_channels + lanes - 1) / lanes);
  const auto vectors_out = static_cast<double>((out_channels + lanes - 1) / lanes);
  const double pairs = static_cast<double>(in_channels) * vectors_out;
  auto contraction = [&](double outputs, double points) { return std::max(outputs, stream) * points * pairs; };
  Winograd best;
  double least = contraction(static_cast<double>(rows * columns), 9);
  for (int64_t m : {2, 4}) {
    const auto tiles = static_cast<double>(((rows + m - 1) / m) * ((columns + m - 1) / m));
    const auto points = static_cast<double>((m + 2) * (m + 2));
    const double cost = contraction(tiles, points) + tiles * points * transform * (vectors_in + vectors_out);
    if (cost < 0.9 * least) {
      least = cost;
      best.m = m;
    }
  }
  return best;
}

Value* winograd_conv(Builder& b, Value* x, const Tensor& filter, int64_t block, Winograd form) {
  const int64_t m = form.m, t = form.tile();
  const Shape& shape = x->type.shape;
  CUVIL_CHECK(shape.size() == 5 && filter.shape()[1] % block == 0, "not a form that Winograd's takes");
  const Dim n = shape[0], rows = shape[2] - 2, columns = shape[3] - 2;
  const Dim tile_rows = ceil_div(rows, m), tile_columns = ceil_div(columns, m), tiles = tile_rows * tile_columns;
  const int64_t ic = filter.shape()[1], oc = filter.shape()[0], padded = (oc + block - 1) / block * block;
  x = b.pad(x, std::vector<Dim>(5, Dim(0)), {0, 0, tile_rows * m - rows, tile_columns * m - columns, 0}, 0);

  // [t rows][t columns][n, ic/B, tile_rows, tile_columns, B]
  Value* half = stack(b, transform_input(b, strided(b, x, 2, t, m, tile_rows)));
  Value* whole = stack(b, transform_input(b, strided(b, half, 4, t, m, tile_columns)));
  Value* left = b.reshape(b.transpose(whole, {1, 0, 2, 4, 5, 3, 6}), {t * t, n, tiles, ic});

  const int64_t nr = panel_columns(padded, block, false);
  const int64_t panels = (padded + nr - 1) / nr;
  Value* u = b.transpose(b.constant(transform_filter(filter, m, nr, panels * nr)), {0, 2, 1, 3});
  u = b.slice_axis(b.reshape(u, {t * t, 1, ic, panels * nr}), 3, 0, padded);

  // [t rows][t columns][n, tile_rows, tile_columns, oc/B, B]
  Value* products = b.reshape(b.matmul(left, u), {t, t, n, tile_rows, tile_columns, padded / block, block});
  half = stack(b, transform_output(b, unstack(b, products, 0, t)));
  whole = stack(b, transform_output(b, unstack(b, half, 1, t)));  // [m columns][m rows][…]
  Value* y = b.transpose(whole, {2, 5, 3, 1, 4, 0, 6});
  y = b.reshape(y, {n, padded / block, tile_rows * m, tile_columns * m, block});
  return b.slice_axis(b.slice_axis(y, 2, 0, rows), 3, 0, columns);
}

}  // namespace cuvil
