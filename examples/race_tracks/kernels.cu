// The kernels of kernels.rs for CUDA: the arithmetic of geometry.rs, operation by operation. It is
// compiled without contraction to fused operations, so that every bit agrees.
struct Point { float x, y; };
struct Corner { float x, y, full; };
const unsigned CORNERS = 20, LAYOUTS = 72, DRAWN = 15, CANDIDATES = 4, LOOKS = 6;
const float CLEARANCE = 64.0f, NEARBY = 215.0f;
struct Corners { Corner at[CORNERS]; };
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

// A random number for (seed, step, track, index), the index counted from `first`.
struct Random {
    unsigned seed, step, track, first;
    __device__ float operator()(unsigned which) const {
        unsigned x = seed * 0x9E3779B9u ^ step * 0x85EBCA6Bu;
        unsigned words[2] = {track, first + which};
        for (int i = 0; i < 2; i++) {
            x ^= (words[i] + 0x7F4A7C15u) * 0xC2B2AE35u;
            x ^= x >> 16; x *= 0x7FEB352Du; x ^= x >> 15; x *= 0x846CA68Bu; x ^= x >> 16;
        }
        return (float)(x >> 8) * (1.0f / 16777216.0f);
    }
};
__device__ float norm2(Point v) { return sqrtf(v.x * v.x + v.y * v.y); }
__device__ float distance2(Point a, Point b) { Point d = {b.x - a.x, b.y - a.y}; return norm2(d); }
__device__ float perimeter(const Point* p, unsigned n) {
    float length = 0.0f;
    for (unsigned i = 0; i < n; i++) length += distance2(p[i], p[(i + 1) % n]);
    return length;
}
__device__ float curvature(Point a, Point b, Point c) {
    Point u = {b.x - a.x, b.y - a.y}, v = {c.x - b.x, c.y - b.y};
    float cross = u.x * v.y - u.y * v.x;
    return 2.0f * cross / fmaxf(norm2(u) * norm2(v) * distance2(a, c), 1e-9f);
}
__device__ float tightest(const float* bend, unsigned n) {
    float most = 1e-6f;
    for (unsigned at = 0; at < n; at++) most = fmaxf(most, fabsf(bend[at]));
    return 1.0f / most;
}

__device__ Point spline(const Corner* corners, unsigned count, unsigned sample, unsigned samples) {
    unsigned corner = sample * count / samples;
    float s = 2.0f * (float)(sample * count % samples) / (float)samples - 1.0f;
    Corner a = corners[(corner + count - 1) % count], c = corners[corner], b = corners[(corner + 1) % count];
    Point before = {0.5f * (a.x - c.x), 0.5f * (a.y - c.y)}, after = {0.5f * (b.x - c.x), 0.5f * (b.y - c.y)};
    float back, on;
    if (s < -c.full) {
        back = -s; on = 0.0f;
    } else if (s > c.full) {
        back = 0.0f; on = s;
    } else {
        float t = (s + c.full) / (2.0f * c.full);
        back = c.full * (1.0f - t) * (1.0f - t); on = c.full * t * t;
    }
    Point place = {c.x + back * before.x + on * after.x, c.y + back * before.y + on * after.y};
    return place;
}

__device__ void untangle(Point* places, unsigned n) {
    bool better = true;
    for (int sweep = 0; better && sweep < 32; sweep++) {
        better = false;
        for (unsigned i = 0; i < n - 2; i++)
            for (unsigned j = i + 2; j < n; j++) {
                Point a = places[i], b = places[i + 1], c = places[j], d = places[(j + 1) % n];
                if (distance2(a, c) + distance2(b, d) < distance2(a, b) + distance2(c, d) - 0.5f) {
                    for (unsigned from = i + 1, to = j; from < to; from++, to--) {
                        Point swapped = places[from];
                        places[from] = places[to];
                        places[to] = swapped;
                    }
                    better = true;
                }
            }
    }
}
__device__ unsigned longest_edge(const Point* places, unsigned count, unsigned edges) {
    unsigned longest = 0;
    float most = 0.0f;
    for (unsigned i = 0; i < edges; i++) {
        float length = distance2(places[i], places[(i + 1) % count]);
        if (length > most) { most = length; longest = i; }
    }
    return longest;
}
__device__ unsigned chicane(float pick, Corner* corners, unsigned count) {
    Point places[CORNERS];
    for (unsigned i = 0; i < count; i++) { places[i].x = corners[i].x; places[i].y = corners[i].y; }
    unsigned edge = longest_edge(places, count, count - 1);
    Point a = places[edge], b = places[edge + 1];
    float length = distance2(a, b);
    if (length < 300.0f) return count;
    for (unsigned i = count; i > edge + 1; i--) corners[i + 1] = corners[i - 1];
    float offset = (pick < 0.5f ? -1.0f : 1.0f) * (20.0f + 16.0f * pick) / length;
    Point across = {-offset * (b.y - a.y), offset * (b.x - a.x)};
    float gap = 42.0f / length, middle = 0.35f + 0.3f * pick;
    for (unsigned i = 0; i < 2; i++) {
        float t = i == 0 ? middle - gap : middle + gap, side = i == 0 ? 1.0f : -1.0f;
        corners[edge + 1 + i].x = a.x + t * (b.x - a.x) + side * across.x;
        corners[edge + 1 + i].y = a.y + t * (b.y - a.y) + side * across.y;
        corners[edge + 1 + i].full = 0.9f;
    }
    return count + 2;
}
__device__ unsigned draw(Random pick, unsigned attempt, Corner* corners) {
    float width = 900.0f + 700.0f * pick(128), height = 480.0f + 420.0f * pick(129);
    unsigned wanted = DRAWN - (unsigned)(6.0f * pick(130));
    unsigned count = max(wanted - min(wanted, attempt / 6), 4u);
    Point places[CORNERS];
    for (unsigned i = 0; i < count; i++) {
        float best = -1.0f;
        for (unsigned c = 0; c < CANDIDATES; c++) {
            unsigned which = (i * CANDIDATES + c) * 2;
            Point place = {width * pick(which), height * pick(which + 1)};
            float nearest = 3.40282347e38f;
            for (unsigned o = 0; o < i; o++) nearest = fminf(nearest, distance2(place, places[o]));
            if (nearest > best) { best = nearest; places[i] = place; }
        }
    }
    untangle(places, count);
    unsigned first = longest_edge(places, count, count) + 1;
    float sweeping = pick(131);
    for (unsigned i = 0; i < count; i++) {
        Point place = places[(first + i) % count];
        bool sweeps = pick(140 + 2 * i) < 0.2f + 0.6f * sweeping;
        float full = pick(141 + 2 * i);
        corners[i].x = place.x;
        corners[i].y = place.y;
        corners[i].full = sweeps ? 0.8f + 0.2f * full : 0.25f + 0.3f * full;
    }
    return pick(132) < 0.6f ? chicane(pick(133), corners, count) : count;
}
__device__ bool fits(const Corner* corners, unsigned count, unsigned attempt) {
    Point looks[CORNERS * LOOKS];
    float laps[CORNERS * LOOKS];
    unsigned n = count * LOOKS;
    float length = 0.0f, area = 0.0f;
    for (unsigned i = 0; i < n; i++) {
        looks[i] = spline(corners, count, i, n);
        if (i > 0) {
            Point a = looks[i - 1], b = looks[i];
            length += distance2(a, b);
            area += a.x * b.y - a.y * b.x;
        }
        laps[i] = length;
    }
    Point a = looks[n - 1], b = looks[0];
    length += distance2(a, b);
    area = 0.5f * fabsf(area + a.x * b.y - a.y * b.x);
    float roundest = 4.6f + 0.12f * (float)attempt;
    if (area > length * length * roundest / 158.0f) return false;
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < i; j++) {
            float lap = laps[i] - laps[j];
            if (fminf(lap, length - lap) > NEARBY && distance2(looks[i], looks[j]) < CLEARANCE) return false;
        }
    return true;
}

KERNEL lay_out(const unsigned* state, Corners* corners, unsigned* counts, unsigned tracks) {
    unsigned track = INDEX;
    if (track >= tracks) return;
    unsigned count = 0;
    for (unsigned attempt = 0; attempt < LAYOUTS; attempt++) {
        Random pick = {state[0], state[1], track, attempt * 256};
        count = draw(pick, attempt, corners[track].at);
        if (fits(corners[track].at, count, attempt)) break;
    }
    counts[track] = count;
}

KERNEL trace(const Corners* corners, const unsigned* counts, Point* out, unsigned m, unsigned count) {
    unsigned index = INDEX;
    if (index >= count) return;
    out[index] = spline(corners[index / m].at, counts[index / m], index % m, m);
}

__device__ float cubic(float a, float b, float c, float d, float before, float here, float after, float t) {
    float u = 1.0f - t, p = (b - a) / before, q = (c - b) / here, r = (d - c) / after;
    float start = (p * here + q * before) / (before + here), end = (q * after + r * here) / (here + after);
    return u * u * (1.0f + 2.0f * t) * b + t * t * (1.0f + 2.0f * u) * c
        + here * (t * u * u * start - t * t * u * end);
}
KERNEL through(const Point* points, Point* out, unsigned n, unsigned each, unsigned count) {
    unsigned index = INDEX;
    if (index >= count) return;
    const Point* track = points + index / (n * each) * n;
    unsigned at = index % (n * each) / each;
    float t = (float)(index % each) / (float)each;
    Point a = track[(at + n - 1) % n], b = track[at], c = track[(at + 1) % n], d = track[(at + 2) % n];
    float before = fmaxf(distance2(a, b), 1e-6f), here = fmaxf(distance2(b, c), 1e-6f),
          after = fmaxf(distance2(c, d), 1e-6f);
    out[index].x = cubic(a.x, b.x, c.x, d.x, before, here, after, t);
    out[index].y = cubic(a.y, b.y, c.y, d.y, before, here, after, t);
}

KERNEL resample(const Point* from, Point* to, unsigned m, unsigned n, unsigned count) {
    unsigned track = INDEX;
    if (track >= count) return;
    from += (size_t)track * m;
    to += (size_t)track * n;
    float step = perimeter(from, m) / (float)n, passed = 0.0f;
    unsigned segment = 0;
    Point a = from[0], b = from[1 % m];
    float length = distance2(a, b);
    for (unsigned i = 0; i < n; i++) {
        float target = step * (float)i;
        while (passed + length < target && segment + 1 < m) {
            passed += length;
            segment += 1;
            a = b;
            b = from[(segment + 1) % m];
            length = distance2(a, b);
        }
        float t = fminf((target - passed) / fmaxf(length, 1e-12f), 1.0f);
        to[i].x = a.x + t * (b.x - a.x);
        to[i].y = a.y + t * (b.y - a.y);
    }
}

KERNEL smooth(const Point* points, Point* out, float by, unsigned n, unsigned count) {
    unsigned index = INDEX;
    if (index >= count) return;
    const Point* track = points + index / n * n;
    unsigned at = index % n;
    Point a = track[(at + n - 1) % n], b = track[at], c = track[(at + 1) % n];
    out[index].x = b.x + by * (0.5f * (a.x + c.x) - b.x);
    out[index].y = b.y + by * (0.5f * (a.y + c.y) - b.y);
}

KERNEL bend(const Point* points, const unsigned* done, float* out, unsigned span, unsigned n, unsigned count) {
    unsigned index = INDEX;
    if (index >= count || done[index / n]) return;
    const Point* track = points + index / n * n;
    unsigned at = index % n;
    out[index] = curvature(track[(at + n - span) % n], track[at], track[(at + span) % n]);
}

KERNEL judge(const float* bend, unsigned* done, unsigned* iterations, unsigned* all_done, float radius,
             unsigned taken, unsigned n, unsigned count) {
    unsigned track = INDEX;
    if (track >= count || done[track]) return;
    iterations[track] += taken;
    if (tightest(bend + (size_t)track * n, n) >= radius) {
        done[track] = 1;
    } else {
        // Every thread that writes writes the same.
        *(volatile unsigned*)all_done = 0;
    }
}

KERNEL relax(const Point* points, const float* bend, const unsigned* done, Point* out, float radius,
             unsigned reach, unsigned n, unsigned count) {
    unsigned i = INDEX;
    if (i >= count) return;
    Point here = points[i];
    out[i] = here;
    if (done[i / n]) return;
    const Point* track = points + i / n * n;
    const float* bends = bend + i / n * n;
    unsigned at = i % n, index = (at + n - 2 * reach) % n;
    float excess = 0.0f;
    for (unsigned o = 0; o <= 4 * reach; o++) {
        float far = (float)abs((int)o - (int)(2 * reach)) / (float)(2 * reach);
        excess = fmaxf(excess, fminf(4.0f * fabsf(bends[index]) * radius - 3.0f, 1.0f) * (1.0f - far));
        index = index + 1 < n ? index + 1 : 0;
    }
    if (excess == 0.0f) return;
    Point sum = {0.0f, 0.0f};
    float weights = 0.0f;
    index = (at + n - reach) % n;
    for (unsigned o = 0; o <= 2 * reach; o++) {
        float weight = (float)(reach + 1 - abs((int)o - (int)reach));
        sum.x += weight * track[index].x;
        sum.y += weight * track[index].y;
        weights += weight;
        index = index + 1 < n ? index + 1 : 0;
    }
    out[i].x = here.x + excess * (sum.x / weights - here.x);
    out[i].y = here.y + excess * (sum.y / weights - here.y);
}

KERNEL borders(const Point* points, Point* left, Point* right, float half_width, unsigned span, unsigned n,
               unsigned count) {
    unsigned index = INDEX;
    if (index >= count) return;
    const Point* track = points + index / n * n;
    unsigned at = index % n;
    Point a = track[(at + n - span) % n], b = track[at], c = track[(at + span) % n];
    Point along = {c.x - a.x, c.y - a.y};
    float scale = half_width / fmaxf(norm2(along), 1e-6f);
    Point across = {along.y * scale, along.x * scale};
    left[index].x = b.x - across.x;
    left[index].y = b.y + across.y;
    right[index].x = b.x + across.x;
    right[index].y = b.y - across.y;
}

KERNEL length(const Point* points, const float* bend, Point* out, unsigned n, unsigned count) {
    unsigned track = INDEX;
    if (track >= count) return;
    out[track].x = perimeter(points + (size_t)track * n, n);
    out[track].y = tightest(bend + (size_t)track * n, n);
}

KERNEL advance(unsigned* state) {
    if (INDEX == 0) state[1] += 1;
}
